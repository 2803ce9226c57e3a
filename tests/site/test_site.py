"""The static site without a browser: what is in it, where its links lead, what its small readers take and refuse."""

from __future__ import annotations

import re
from html.parser import HTMLParser
from pathlib import Path, PurePosixPath
from xml.etree import ElementTree

import pytest

from fmha import Problem, Tiling, formulas, glossary, ladder
from fmha.cli import main
from fmha.lecture.library import FIRST, decks, load
from fmha.measurement import SHIPPED, shipped
from fmha.site import as_run, players
from fmha.site.build import LEFT_OUT, MARK, build
from fmha.site.frame import MENU
from fmha.site.maths import mathml
from fmha.site.text import html_of

STEPS = load(decks()[FIRST]).steps


@pytest.fixture(scope="module")
def site(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("out") / "site"
    build(folder)
    return folder


class Addresses(HTMLParser):
    """What a page refers to."""

    def __init__(self, text: str) -> None:
        super().__init__()
        self.loads: list[str] = []  # by the browser, without being asked
        self.links: list[str] = []
        self.feed(text)

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        for name, value in attrs:
            if value and (name in ("src", "data-plotly") or (name == "href" and tag == "link")):
                self.loads.append(value)
            elif value and name == "href":
                self.links.append(value)


def pages(site: Path) -> list[Path]:
    return sorted(site.rglob("*.html"))


def test_the_site_has_every_page_of_its_menu_every_step_and_every_player(site: Path) -> None:
    names = {path.relative_to(site).as_posix() for path in pages(site)}
    assert {target for target, _ in MENU} <= names
    assert {f"lecture/{n:02}.html" for n in range(1, len(STEPS) + 1)} <= names
    assert {f"players/{preset.name}.html" for preset in players.PRESETS} <= names
    assert sum(path.stat().st_size for path in site.rglob("*") if path.is_file()) < 25_000_000


def test_no_link_leads_nowhere_and_nothing_is_loaded_from_elsewhere(site: Path) -> None:
    looked_at = 0
    for path in pages(site):
        found = Addresses(path.read_text(encoding="utf-8"))
        for address in found.loads + [link for link in found.links if not link.startswith("https://")]:
            assert "://" not in address and not address.startswith(("/", "data:")), (path.name, address)
            target = PurePosixPath(path.parent.as_posix()) / address.split("#")[0]
            assert Path(target).resolve().is_file(), (path.name, address)
            looked_at += 1
    assert looked_at > 300
    # References name pages of others: links that a person may follow, on that page alone.
    outside = {p.name for p in pages(site) if "https://" in "".join(Addresses(p.read_text(encoding="utf-8")).links)}
    assert outside == {"references.html"}


def test_players_lead_to_one_another(site: Path) -> None:
    names = [preset.name for preset in players.PRESETS]
    assert len(names) == len(set(names)) >= 8
    at = names[0]
    for after in names[1:]:
        nav = re.search(
            r'<nav aria-label="Pages">(.*?)</nav>', (site / f"players/{at}.html").read_text(encoding="utf-8")
        )
        assert nav
        hrefs = re.findall(r'href="([^"]+)"', nav[1])
        assert hrefs[0] == "../players.html" and f"{after}.html" in hrefs
        at = after


def test_answers_and_glossary_are_those_of_the_app(site: Path) -> None:
    asks = [n for n, step in enumerate(STEPS, 1) if step.question is not None]
    for number in asks:
        text = (site / f"lecture/{number:02}.html").read_text(encoding="utf-8")
        assert text.count('<details class="reveal">') == 1 and "None of these" not in text, number
    words = (site / "glossary.html").read_text(encoding="utf-8")
    assert words.count("<dt>") == len(glossary.TERMS)


def test_recordings_are_there_in_full(site: Path) -> None:
    text = (site / "recorded.html").read_text(encoding="utf-8")
    all_of_them = (*shipped(), *ladder.shipped())
    timed = sum(e.time is not None and not e.absent for r in all_of_them for run in r.runs for e in run.entries)
    assert timed > 100 and text.count("<tr><td>") == timed
    for path in [*SHIPPED.glob("*.json"), *ladder.SHIPPED.glob("*.json")]:
        assert (site / "recordings" / path.name).read_bytes() == path.read_bytes()


def test_runs_with_the_times_of_a_gpu_say_so(site: Path) -> None:
    text = (site / "recorded.html").read_text(encoding="utf-8")
    assert text.count("<b>As run</b>") == text.count("<b>Predicted</b>") == len(as_run.TIMELINES)
    played = (site / as_run.PLAYER).read_text(encoding="utf-8")
    assert "by time stamps" in played and "Recorded on NVIDIA H200" in played and "no measurement" not in played
    assert as_run.PLAYER in (site / "players.html").read_text(encoding="utf-8")


def test_the_first_page_says_what_is_left_out(site: Path) -> None:
    assert "make run" in LEFT_OUT and LEFT_OUT in (site / "index.html").read_text(encoding="utf-8")


# --- the folder -------------------------------------------------------------------------------------------------------


def test_a_folder_of_something_else_is_left_alone(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    (tmp_path / "thesis.txt").write_text("years of work")
    assert main(["site", "--out", str(tmp_path)]) == 2
    said = capsys.readouterr().err
    assert "holds something else" in said and len(said.splitlines()) == 1
    assert [path.name for path in tmp_path.iterdir()] == ["thesis.txt"]
    assert main(["site", "--out", str(tmp_path / "thesis.txt")]) == 2


def test_a_site_is_written_anew_and_old_pages_go(site: Path, capsys: pytest.CaptureFixture[str]) -> None:
    stray = site / "players" / "of-yesterday.html"
    stray.write_text("old")
    assert main(["site", "--out", str(site)]) == 0
    assert "index.html" in capsys.readouterr().out
    assert not stray.exists() and (site / MARK).is_file()


# --- formulas and Markdown --------------------------------------------------------------------------------------------


def test_every_formula_of_the_app_becomes_mathml() -> None:
    p, t = Problem(H=16, N=4096, d=64), Tiling(32, 32)
    made = [
        *formulas.tile_counts(p, t), *(formulas.requested(p, t, order) for order in ("naive", "q-outer", "kv-outer")),
        formulas.requested(p.replace(causal="bottom-right"), t, "q-outer"), formulas.compulsory(p),
        formulas.limit_ratio(p, t), formulas.theorem2(p, 1 << 17), formulas.flops(p, t), formulas.matrix_bytes(p),
        formulas.moving_us(1 << 20, 4800), formulas.multiplying_us(1 << 30, 60), formulas.smem(t, 64),
        *formulas.paper_tiles(1 << 15, 64),
        *formulas.row_step(formulas.RowBefore(), [1.0, 2.0], [1.0, 0.5]),
    ]  # fmt: skip
    for formula in made:
        tree = ElementTree.fromstring(mathml(formula.latex, display=True))
        assert tree.get("display") == "block"
        assert "\\" not in "".join(tree.itertext()) and "{" not in "".join(tree.itertext())


@pytest.mark.parametrize(
    ("latex", "wanted"),
    [
        (r"a_i^2", "<msubsup><mi>a</mi><mi>i</mi><mn>2</mn></msubsup>"),
        (r"\frac{1}{\sqrt{d}}", "<mfrac><mn>1</mn><msqrt><mi>d</mi></msqrt></mfrac>"),
        (r"1{,}024.5", "<mn>1,024.5</mn>"),
        (r"\text{a < b}", "<mtext>a &lt; b</mtext>"),
        (r"-\infty", "<mrow><mo>−</mo><mi>∞</mi></mrow>"),
    ],
)
def test_maths(latex: str, wanted: str) -> None:
    assert mathml(latex) == f"<math>{wanted}</math>"


@pytest.mark.parametrize("latex", [r"\unknown{a}", r"\frac{a}", "{a", "a_"])
def test_what_is_no_formula_is_an_error(latex: str) -> None:
    with pytest.raises(ValueError, match="formula"):
        mathml(latex)


def test_markdown_brings_no_markup_of_its_own() -> None:
    text = html_of("<img src=x onerror=alert(1)> **a <b>** `<i>` [x](javascript:alert(1)) [y](/kernel-lab)\n\n- $a<b$")
    assert set(re.findall(r"<(\w+)", text)) == {"p", "strong", "code", "ul", "li", "math", "mrow", "mi", "mo"}
    assert "javascript" not in text and "href" not in text


def test_markdown() -> None:
    text = html_of("One *line*\nof two: \\*plain\\*, `a*b`.\n\n1. first\n   goes on\n2. [paper](https://example.org/a)")
    assert "<p>One <em>line</em>\nof two: *plain*, <code>a*b</code>.</p>" in text
    assert '<ol><li>first goes on</li><li><a href="https://example.org/a" rel="noopener">paper</a></li></ol>' in text
