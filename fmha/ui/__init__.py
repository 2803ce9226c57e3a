"""The Streamlit side of FMHA Lab: controls, page frame, charts, component assets.

Nothing is imported here, because `parameters` and `settings` are plain Python and are tested without Streamlit.
"""
