"""What every page of the site has: head, menu, foot, and a policy that lets nothing be fetched from elsewhere."""

from __future__ import annotations

from html import escape

# File, words in the menu.
MENU = (
    ("index.html", "FMHA Lab"),
    ("lecture/01.html", "Lecture"),
    ("players.html", "Players"),
    ("figures.html", "Figures"),
    ("recorded.html", "Recorded on GPUs"),
    ("papers.html", "Paper check"),
    ("glossary.html", "Glossary"),
    ("references.html", "References"),
)
ASSETS = "assets"
# Figures are drawn with inline styles, and saved through images that are made in the page.
_POLICY = (
    "default-src 'none'; script-src 'self'; style-src 'self' 'unsafe-inline'; img-src data: blob:; frame-src 'self'"
)


def page(file: str, title: str, body: str) -> str:
    """A page of the site as HTML.

    file: its path in the site, with /; links are relative, so that the folder can lie anywhere. body: HTML.
    """
    up = "../" * file.count("/")
    section = file.split("/")[0].removesuffix(".html")
    links = "".join(f'<a href="{up}{target}"{_current(target, section)}>{escape(words)}</a>' for target, words in MENU)
    return f"""<!DOCTYPE html>
<html lang="en">
<head>
<meta charset="utf-8">
<meta http-equiv="Content-Security-Policy" content="{_POLICY}">
<meta name="viewport" content="width=device-width, initial-scale=1">
<title>{escape(title)} - FMHA Lab</title>
<link rel="stylesheet" href="{up}{ASSETS}/site.css">
<script src="{up}{ASSETS}/site.js" defer></script>
</head>
<body>
<header><nav aria-label="Pages">{links}</nav></header>
<main>
{body}
</main>
<footer>Made with FMHA Lab from its own sources. Nothing here is fetched from elsewhere, and nothing is sent.</footer>
</body>
</html>
"""


def _current(target: str, section: str) -> str:
    return ' aria-current="page"' if target.split("/")[0].removesuffix(".html") == section else ""


def table(head: list[str], rows: list[list[str]], numbers: set[int]) -> str:
    """A table that scrolls by itself where it is too wide. Cells are plain text; numbers: columns set to the right."""

    def row(cells: list[str], tag: str) -> str:
        kind = ' scope="col"' if tag == "th" else ""
        return "".join(
            f"<{tag}{kind}{' class=n' if k in numbers else ''}>{escape(cell)}</{tag}>" for k, cell in enumerate(cells)
        )

    body = "".join(f"<tr>{row(cells, 'td')}</tr>" for cells in rows)
    return (
        f'<div class="scroll" role="region" aria-label="Table: {escape(", ".join(head[:3]))}">'
        f"<table><thead><tr>{row(head, 'th')}</tr></thead><tbody>{body}</tbody></table></div>"
    )


__all__ = ["ASSETS", "MENU", "page", "table"]
