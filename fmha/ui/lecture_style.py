"""How a lecture looks: its layout, and present mode, which is the page without everything but the step."""

from __future__ import annotations

# The heading of the page is small, the step's is large. Beside the text there is room for the player from 1150 px on.
_LECTURE = """
h1 { font-size: 0.95rem !important; font-weight: 600 !important; padding: 0 !important; opacity: 0.85; }
.st-key-lecture-idea { flex-flow: row wrap; align-items: baseline; column-gap: 1.5rem; row-gap: 0;
  margin-bottom: -0.2rem; }
.st-key-lecture-idea > * { width: auto !important; }
.st-key-lecture-idea p { font-size: 0.95rem; opacity: 0.85; margin: 0; }
.st-key-lecture-step { row-gap: 0.95rem; }
.st-key-lecture-step h2 { font-size: 2rem !important; line-height: 1.2; padding: 0.1rem 0 0.3rem; }
.st-key-lecture-do, .st-key-lecture-ask { row-gap: 0.8rem; padding: 0.7rem 1rem; }
@media (max-width: 640px) {
  .st-key-lecture-step h2 { font-size: 1.6rem !important; }
  .st-key-lecture-idea { row-gap: 1rem; }
}
.st-key-lecture-text [data-testid=stMarkdownContainer] p { font-size: 1.1rem; line-height: 1.5; }
.st-key-lecture-do h2, .st-key-lecture-ask h2 { font-size: 0.95rem !important; padding: 0; }
.st-key-lecture-ask label p { font-size: 1.05rem; }
[data-testid=stMainBlockContainer] { padding-bottom: 6rem !important; }
"""

# Where text and picture do not fit side by side, the picture comes below. In present mode all is drawn smaller instead.
_STACKED = """
@media (max-width: 1149px) {
  .st-key-lecture-step > [data-testid=stHorizontalBlock],
  .st-key-lecture-step > div > [data-testid=stHorizontalBlock] {
    flex-wrap: wrap; }
  .st-key-lecture-step > [data-testid=stHorizontalBlock] > [data-testid=stColumn],
  .st-key-lecture-step > div > [data-testid=stHorizontalBlock] > [data-testid=stColumn] { min-width: 100%; }
}
"""

# Made for a window of about 1280 x 780; the presenter sets --fmha-zoom to what the window allows. Text is
# black on white, or white on nearly black. Charts show no tooltips: Plotly looks for the pointer where it would be
# without the zoom.
_PRESENT = """
[data-testid=stApp] { zoom: var(--fmha-zoom, 1); width: calc(100vw / var(--fmha-zoom, 1));
  height: calc(100vh / var(--fmha-zoom, 1)); }
[data-testid=stAppViewContainer], :has(> [data-testid=stMain]), [data-testid=stMain] {
  height: 100% !important; max-height: none !important;
}
.fmha-chart { pointer-events: none; }
[data-testid=stHeader], [data-testid=stToolbar], .st-key-lecture-idea [data-testid=stMarkdown],
.st-key-lecture-more, .st-key-lecture-link,
.st-key-lecture-step [data-testid=stCaptionContainer] { display: none !important; }
[data-testid=stMainBlockContainer] { padding: 0.8rem 1.8rem 2.4rem !important; max-width: none; }
.st-key-lecture-step h2 { font-size: 2.3rem !important; }
.st-key-lecture-text [data-testid=stMarkdownContainer] p { font-size: 1.28rem; line-height: 1.4; }
.st-key-lecture-do [data-testid=stMarkdownContainer] p { font-size: 1.13rem; line-height: 1.35; }
.st-key-lecture-ask [data-testid=stMarkdownContainer] p, .st-key-lecture-ask label p {
  font-size: 1.13rem; line-height: 1.35;
}
.st-key-lecture-do h2, .st-key-lecture-ask h2 { font-size: 1.05rem !important; }
.st-key-lecture-step h2, .st-key-lecture-text :is(p, li), .st-key-lecture-do :is(p, li),
.st-key-lecture-ask :is(p, li):not(button *) { color: light-dark(#000, #fff); }
"""

# The speaker's window: nothing but the notes.
_SPEAKER = """[data-testid=stHeader] { display: none; } .st-key-lecture-idea [data-testid=stMarkdown] { display: none; }
.st-key-lecture-more { display: none; }"""


def style(*, present: bool, speaker: bool) -> str:
    """The page's <style>, for `st.html`."""
    return f"<style>{_LECTURE}{_PRESENT if present else _STACKED}{_SPEAKER if speaker else ''}</style>"
