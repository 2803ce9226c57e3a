"""The chart component's browser side: `frontend/chart.mjs`. Python's side is `fmha.ui.charts`."""
