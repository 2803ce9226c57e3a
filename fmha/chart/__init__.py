"""The chart component's browser side: `frontend/chart.js`. Python's side is `fmha.ui.charts`."""
