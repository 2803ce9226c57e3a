"""Python API: every module, every public name, read from the sources."""

from __future__ import annotations

import streamlit as st

from fmha.apidoc import API, find, markdown, modules
from fmha.ui import controls
from fmha.ui.page import page, plain, try_this
from fmha.ui.words_api import show_item, summary

MOST = 20  # hits that are shown in full

page(
    "Python API",
    "**What the pages show, Python has too:** `from fmha import Problem, Tiling, simulate, traffic`. This reference is "
    "read from the sources; nothing is run for it.",
    begins_with="words",
)
known = modules()
left, right = st.columns(2)
with left:
    wanted = controls.text("find", "Find a name or words of its text", longest=40, help="Everywhere in the package.")
with right:
    name = controls.choice(
        "module", "Module", {key: key if key != API else "fmha (begin here)" for key in known}, default=API
    )
controls.notices()
if wanted.strip():
    hits = find(wanted)
    more = f", of which {MOST} are shown; one more word narrows it down" if len(hits) > MOST else ""
    st.markdown(f"**{len(hits)} names** have “{plain(wanted)}” in their name or text{more}.")
    for hit in hits[:MOST]:
        show_item(hit, full=True)
    if not hits:
        st.info("Try a part of the name, such as *bytes*, or a symbol, such as *LSE*.")
else:
    module = known[name]
    st.header(name, anchor=False)
    st.markdown(markdown(module.doc))
    st.caption(f"{plain(module.file)} · {len(module.items)} public names")
    for item in module.items:
        show_item(item)
    below = [other for other in known.values() if other.name.startswith(f"{name}.") and name != API]
    if name == API:
        below = [other for other in known.values() if other.name.count(".") == 1]
    if below:
        with st.expander(f"Modules in {name} ({len(below)})", expanded=False):
            st.markdown("\n".join(f"- `{other.name}`: {markdown(summary(other))}" for other in below))
try_this(
    [
        "Find *closed_form*. It counts bytes without events; `traffic` takes it by itself where events would be too "
        "many.",
        "In a terminal: `python -m fmha traffic --N 4096 --d 64`, then `python -m fmha --help` for what else there is.",
        "Open the module *fmha.events*: the columns of the table that every picture is drawn from.",
    ]
)
