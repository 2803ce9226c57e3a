"""FMHA Lab: `streamlit run app.py`, or `make run`.

The menu, and nothing that a page depends on: each page in `pages/` also renders alone.
Streamlit reads this file in two ways. The server imports it once and serves `app`; for every visitor and
every change of a widget it runs it as a script.
"""

from __future__ import annotations

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path

import streamlit as st
from streamlit.runtime.pages_manager import PagesManager

HERE = Path(__file__).resolve().parent

# Section -> (file under pages/, title). The first page of all is the one at "/"; the others are found at
# their file name with hyphens, for example /memory-wall.
MENU: dict[str, list[tuple[str, str]]] = {
    "Learn": [
        ("learn/guided_lecture.py", "Guided lecture"),
        ("learn/attention.py", "Attention"),
        ("learn/memory_wall.py", "The memory wall"),
        ("learn/online_softmax.py", "Online softmax"),
        ("learn/worked_example.py", "Worked example"),
        ("learn/glossary.py", "Glossary"),
        ("learn/references.py", "References"),
    ],
    "Lab": [
        ("lab/tiles_in_motion.py", "Tiles in motion"),
        ("lab/hbm_traffic.py", "HBM traffic"),
        ("lab/under_the_hood.py", "Under the hood of HBM"),
        ("lab/timeline.py", "Timeline"),
        ("lab/the_ladder.py", "The ladder"),
        ("lab/kernel_lab.py", "Kernel lab"),
        ("lab/inside_the_kernel.py", "Inside the kernel"),
        ("lab/tile_map.py", "Tile map"),
        ("lab/roofline.py", "Roofline"),
        ("lab/paper_check.py", "Paper check"),
        ("lab/api.py", "Python API"),
    ],
}


def url_path(file: str) -> str:
    """The address of a page file: `lab/hbm_traffic.py` is served at `hbm-traffic`."""
    return Path(file).stem.replace("_", "-")


def show_page() -> None:
    """One visitor's run: draw the menu and run the page that the address names."""
    first = next(iter(MENU.values()))[0][0]

    def entry(file: str, title: str) -> st.Page:
        path = "start" if file == first else url_path(file)
        return st.Page(HERE / "pages" / file, title=title, url_path=path, default=file == first)

    pages = {section: [entry(*item) for item in items] for section, items in MENU.items()}
    home = next(iter(pages.values()))[0]

    def go_home() -> None:
        st.switch_page(home, query_params=st.query_params.to_dict())

    # Streamlit serves the first page at "/" only; this answers a link that names it as the others are named.
    alias = st.Page(go_home, title="Start", url_path=url_path(first), visibility="hidden")
    st.navigation({**pages, "": [alias]}, position="top").run()


@asynccontextmanager
async def warm_start(_server: st.App) -> AsyncIterator[None]:
    """Before the first visitor: import what pages need, so that none of them waits for it."""
    from fmha.ui.warm import warm_up

    # The menu is `st.navigation`'s. Streamlit believes otherwise wherever a folder is called `pages`, until
    # `st.navigation` has run for the first time; the very first visitor, if he came by a deep link, would be told that
    # his page does not exist.
    PagesManager.uses_pages_directory = False

    warm_up()
    yield


if __name__ == "__main__":
    show_page()
else:
    app = st.App(__file__, lifespan=warm_start)
