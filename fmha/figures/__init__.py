"""Figures: pure functions from core results (NumPy arrays, dataclasses) to Plotly figures. No Streamlit
here."""
