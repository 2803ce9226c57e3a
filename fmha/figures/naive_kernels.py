"""What each of naive attention's three kernels reads and writes."""

from __future__ import annotations

from collections.abc import Mapping

import plotly.graph_objects as go

from fmha.figures import theme
from fmha.figures.sketch import Sketch
from fmha.units import format_bytes

KERNELS = (
    ("1: S = Q Kᵀ", ("Q", "K"), ("S",)),
    ("2: P = softmax S", ("S",), ("P",)),
    ("3: O = P V", ("P", "V"), ("O",)),
)


def kernel_bytes(by_tensor: Mapping[str, tuple[int, int]]) -> dict[str, list[tuple[str, str, int]]]:
    """Kernel -> [("reads" or "writes", tensor, bytes)], from a naive `Traffic.by_tensor`."""
    return {
        name: [("reads", t, by_tensor.get(t, (0, 0))[0]) for t in reads]
        + [("writes", t, by_tensor.get(t, (0, 0))[1]) for t in writes]
        for name, reads, writes in KERNELS
    }


def naive_kernels(by_tensor: Mapping[str, tuple[int, int]], height: int = 340) -> go.Figure:
    """Stacked bars, one a kernel: bytes read (plain) and written (hatched), by tensor."""
    fig = Sketch("Bytes each kernel moves", height)
    kernels = kernel_bytes(by_tensor)
    sums = {name: sum(size for _, _, size in parts) for name, parts in kernels.items()}
    longest = max(max(sums.values()), 1)
    for name, parts in kernels.items():
        for verb, tensor, size in parts:
            role = "S" if tensor in "SP" else tensor
            fig.add_bar(
                y=[name],
                x=[size],
                orientation="h",
                showlegend=False,
                text=f"{verb} {tensor}" if size > 0.2 * longest else "",
                textposition="inside",
                insidetextanchor="middle",
                marker={
                    "color": theme.color(role),
                    "line": {"color": theme.color(role), "width": 1},
                    "pattern": theme.hatch("" if verb == "reads" else "/"),
                },
                hovertemplate=f"{verb} {tensor}: {format_bytes(size)}<extra>kernel {name}</extra>",
            )
        fig.add_annotation(x=sums[name], y=name, text=f" {format_bytes(sums[name])}", showarrow=False, xanchor="left")
    fig.update(barmode="stack", bargap=0.35)
    fig.yaxis(autorange="reversed")
    fig.xaxis(title="bytes", range=[0, 1.28 * longest], showticklabels=False)
    return fig.figure()
