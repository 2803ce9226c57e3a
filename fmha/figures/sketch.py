"""A figure in the making: plain dictionaries, turned into a Plotly figure once at the end.

Plotly checks every property at every `add_...` and `update_...`; on a page with five charts that costs more than all
the rest. A sketch collects traces, shapes, annotations and axes, and has them checked once, by `figure()`.
"""

from __future__ import annotations

from typing import Any

import plotly.graph_objects as go

from fmha.figures import theme


class Sketch:
    """Traces and layout under the theme's template. Methods are named like Plotly's and take the same properties."""

    def __init__(self, title: str = "", height: int = 380) -> None:
        self.data: list[dict[str, Any]] = []
        self.shapes: list[dict[str, Any]] = []
        self.annotations: list[dict[str, Any]] = []
        self.layout: dict[str, Any] = {"height": height, "xaxis": {}, "yaxis": {}}
        self.narrow: dict[str, Any] = {}  # what the chart component takes instead in a narrow column
        if title:
            self.layout["title"] = {"text": title}

    def add_bar(self, **trace: Any) -> None:
        self.data.append({"type": "bar", **trace})

    def add_scatter(self, **trace: Any) -> None:
        self.data.append({"type": "scatter", **trace})

    def add_heatmap(self, **trace: Any) -> None:
        self.data.append({"type": "heatmap", **trace})

    def add_shape(self, **shape: Any) -> None:
        self.shapes.append(shape)

    def add_vline(self, x: float, line: dict[str, Any]) -> None:
        """A line across the whole height at x, in data units, also on a logarithmic axis."""
        self.shapes.append({"type": "line", "x0": x, "x1": x, "y0": 0, "y1": 1, "yref": "y domain", "line": line})

    def add_hline(self, y: float, line: dict[str, Any]) -> None:
        """A line across the whole width at y, in data units, also on a logarithmic axis."""
        self.shapes.append({"type": "line", "y0": y, "y1": y, "x0": 0, "x1": 1, "xref": "x domain", "line": line})

    def add_frame(self, x0: float, y0: float, x1: float, y1: float, color: str) -> None:
        """A thick frame around a cell, to mark the selection by more than colour."""
        line = {"width": 3, "color": color}
        self.shapes.append({"type": "rect", "x0": x0, "x1": x1, "y0": y0, "y1": y1, "line": line})

    def add_annotation(self, **annotation: Any) -> None:
        """As in Plotly; on a logarithmic axis x or y is the log10. Its colour is the page's unless one is given."""
        self.annotations.append(annotation)

    def add_label(self, x: Any, y: Any, text: str, **more: Any) -> None:
        """An annotation without an arrow."""
        self.annotations.append({"x": x, "y": y, "text": text, "showarrow": False, **more})

    def xaxis(self, title: str | None = None, **axis: Any) -> None:
        """Set properties of the x axis."""
        self.layout["xaxis"].update(axis if title is None else {"title": {"text": title}, **axis})

    def yaxis(self, title: str | None = None, **axis: Any) -> None:
        """Set properties of the y axis."""
        self.layout["yaxis"].update(axis if title is None else {"title": {"text": title}, **axis})

    def update(self, **layout: Any) -> None:
        """Set properties of the layout."""
        self.layout.update(layout)

    def narrowly(self, kind: str, **properties: Any) -> None:
        """Properties that the last annotation or shape has in a narrow column. kind: "annotations" or "shapes"."""
        last = len(getattr(self, kind)) - 1
        self.narrow.setdefault(kind, {}).setdefault(str(last), {}).update(properties)

    def figure(self) -> go.Figure:
        """The finished figure."""
        layout = {"template": theme.template(), "shapes": self.shapes, "annotations": self.annotations, **self.layout}
        if self.narrow:
            layout["meta"] = {**layout.get("meta", {}), "narrow": self.narrow}
        return go.Figure(data=self.data, layout=layout)
