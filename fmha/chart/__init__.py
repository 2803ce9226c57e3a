"""The chart component's browser side: `frontend/chart.mjs`. Python's side is `fmha.ui.charts`.

`frontend/drawing.mjs` draws without Streamlit; the static site uses it as it is.
"""

# Beside the chart, which is an image to a screen reader and has no controls inside. Out of sight until it is wanted.
MENU = (
    '<details class="fmha-save" hidden><summary>Save</summary><div>'
    '<button data-kind="png">PNG</button><button data-kind="svg">SVG</button><button data-kind="csv">CSV</button>'
    "</div></details>"
)
