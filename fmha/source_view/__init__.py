"""CUDA sources on a page: syntax colours (`highlight`), and the browser side of the listing (`frontend/`).

Python's side of the listing is `fmha.ui.trace_source`.
"""
