"""The box of recordings: save one's own run, open a saved one."""

from __future__ import annotations

import streamlit as st

from fmha.errors import FmhaError
from fmha.measurement import read
from fmha.ui import cards, live, sentences
from fmha.ui.live_box import RECORDED, WHICH
from fmha.ui.page import plain


def _opened() -> None:
    """A file was chosen, or taken away: read it once, strictly."""
    desk = live.desk_in(st.session_state)
    file = st.session_state.get("recording")
    desk.opened = desk.refused = None
    if file is None:
        return
    try:
        desk.opened = file.name, read(file.getvalue(), "The file")
        st.session_state[WHICH] = RECORDED
    except FmhaError as error:
        desk.refused = str(error)


def _close() -> None:
    """Back to the recordings that come with the app."""
    live.desk_in(st.session_state).opened = None


def recordings_box(
    outcome: live.Outcome | None,
    note: str = "A run of your own can be saved here as a recording, and opened again on any machine.",
) -> None:
    """Save one's own run, open a saved one. note: what stands in place of a run to be saved."""
    st.header("Recordings", anchor=False)
    desk = live.desk_in(st.session_state)
    left, right = st.columns(2)
    with left:
        st.file_uploader("Open a recording", type="json", key="recording", on_change=_opened, max_upload_size=16)
        if desk.refused:
            st.error(plain(desk.refused))
        if desk.opened:
            st.button(f"Close {sentences.said(desk.opened[0], 60)}", on_click=_close, key="close")
    with right:
        if outcome is None:
            st.markdown(note)
        else:
            st.download_button(
                "Download this run as a recording", outcome.recording.to_json(), mime="application/json",
                file_name=cards.file_name(outcome.recording), key="save-run", on_click="ignore",
            )  # fmt: skip
