"""Lectures: decks of steps as data, what a step may show and ask, and where decks are found. No Streamlit here."""
