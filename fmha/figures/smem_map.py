"""What lies at which offset in the shared memory of a block, to scale."""

from __future__ import annotations

from collections.abc import Sequence

import plotly.graph_objects as go

from fmha.figures import theme
from fmha.figures.sketch import Sketch
from fmha.hardware import KIB, Gpu
from fmha.kernels import Launch
from fmha.units import format_bytes

# The colour of what a piece holds.
_ROLES = {
    "Qi": "Q", "Kj": "K", "Vj": "V", "Sij": "S", "Pij": "S", "row": "S", "Oi": "O", "li": "l", "mi": "m",
    "alpha": "alpha", "beta": "alpha", "warps of max": "m", "warps of sum": "l",
}  # fmt: skip
_HATCHED = {"Pij", "beta", "row"}  # they share a colour with another piece
_NAMED = 0.045  # of the axis: a narrower piece has no room for its name


def used_bytes(launch: Launch) -> int:
    """Shared memory of one block of this launch, static and dynamic, in bytes."""
    return launch.smem_bytes + launch.static_smem_bytes


def smem_map(launches: Sequence[Launch], gpu: Gpu) -> go.Figure:
    """A bar a launched function, a piece an array; lines at the 48 KiB without opt-in and at the GPU's limit."""
    fig = Sketch("", 112 + 62 * len(launches))
    most = max(used_bytes(launch) for launch in launches)
    default, optin = gpu.smem_per_block_default, gpu.smem_per_block_optin
    end = max(default, most) if most <= default else max(optin, most)
    for launch in launches:
        for slot in launch.smem:
            fig.add_bar(
                y=[launch.function],
                x=[slot.nbytes / KIB],
                base=[slot.offset / KIB],
                orientation="h",
                showlegend=False,
                text=slot.name if slot.nbytes > _NAMED * end else "",
                textposition="inside",
                insidetextanchor="middle",
                textangle=0,
                marker={
                    "color": theme.color(_ROLES.get(slot.name, "skip")),
                    "pattern": theme.hatch("/" if slot.name in _HATCHED else ""),
                    "line": {"width": 0},
                },
                hovertemplate=f"{slot.name} {list(slot.shape)}<br>from byte {slot.offset:,}: {slot.nbytes:,} bytes"
                f"<extra>{launch.function}</extra>",
            )
        fig.add_annotation(
            x=used_bytes(launch) / KIB, y=launch.function, text=f" {format_bytes(used_bytes(launch))}",
            showarrow=False, xanchor="left",
        )  # fmt: skip
    for limit, words, row in ((default, "without opt-in", 0), (optin, "limit of a block", 1)):
        if limit <= end:
            fig.add_vline(limit / KIB, {"color": theme.color("warn"), "width": 2, "dash": "dash"})
            fig.add_annotation(
                x=limit / KIB, y=1, yref="y domain", yanchor="bottom", yshift=20 * row,
                xanchor="left" if limit < 0.4 * end else "right", showarrow=False,
                text=f"{limit // KIB} KiB: {words}",
            )  # fmt: skip
    fig.update(barmode="overlay", bargap=0.35, margin={"t": 52})
    fig.yaxis(autorange="reversed", showticklabels=len(launches) > 1, showgrid=False)
    fig.xaxis(title="offset, KiB", range=[0, 1.14 * end / KIB], zeroline=False)
    return fig.figure()
