"""The glossary, the references and the reference of the API: complete, found, and true to what is on screen."""

from __future__ import annotations

import ast
import html
import inspect
import re
from pathlib import Path

import pytest

import fmha
from fmha import FmhaError, apidoc, glossary, references
from fmha.cli import main
from fmha.errors import FmhaError as Base
from fmha.events import MEMORIES, PHASES, TENSORS
from fmha.figures import theme
from fmha.paper_ratios import all_claims
from fmha.papers import CLAIMS
from fmha.schedule import ORDERS
from fmha.ui.words_marks import marked

ROOT = Path(__file__).resolve().parent.parent.parent
# Labels of plain words: they say themselves what they do.
PLAIN = {"verdict", "colour", "site{}", "find", "subject", "module", "check", "all", "step", "cross"}


def controls() -> list[tuple[str, str]]:
    """URL name and label of every control in the app's sources; what is computed in them is left out."""
    found = []
    for path in [*ROOT.glob("pages/*/*.py"), *ROOT.glob("fmha/ui/*.py")]:
        for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
            if not isinstance(node, ast.Call) or any(keyword.arg == "help" for keyword in node.keywords):
                continue  # no control, or one with a help of its own
            if ast.unparse(node.func).startswith("controls.") and len(node.args) >= 2:
                found.append((text_of(node.args[0]), text_of(node.args[1])))
    return found


def text_of(node: ast.expr) -> str:
    if isinstance(node, ast.JoinedStr):
        return "".join(str(p.value) if isinstance(p, ast.Constant) else "{}" for p in node.values)
    return str(node.value) if isinstance(node, ast.Constant) else "{}"


def test_there_are_controls_to_look_at() -> None:
    assert len(controls()) > 60


@pytest.mark.parametrize(("name", "label"), sorted(set(controls())))
def test_every_control_is_explained_by_the_glossary(name: str, label: str) -> None:
    if name in PLAIN or name == "{}":
        return
    assert glossary.of_control(name, label) is not None, f"{name!r} ({label!r}) needs an entry in fmha/glossary.py"


def test_words_of_the_design_and_of_the_player_are_in_the_glossary() -> None:
    letters = "B H Hk N Nq Nk d Br Bc Tr Tc S P O m l alpha LSE worker visit order HBM L2 SMEM REG".split()
    for word in [*letters, *ORDERS, *MEMORIES, *TENSORS]:
        assert glossary.lookup(word) is not None, word
    for role in theme.ROLES:
        if role not in ("skip", "ok", "warn"):
            assert glossary.lookup(role) is not None, role
    for phase in PHASES:
        for symbol in re.findall(r"[A-Za-z_]\w*", phase.maths):
            bare = re.sub(r"^([QKVSPOlm])(ij|i|j)$", r"\1", symbol)
            if bare not in ("load", "store", "write", "exp", "ln", "max", "T", "inf"):
                assert glossary.lookup(bare) is not None, (phase.maths, symbol)


def test_words_that_the_player_writes_are_in_the_glossary() -> None:
    page = (ROOT / "fmha/player/frontend/player.html").read_text(encoding="utf-8")
    for word in ("phase", "tile", "worker", "SM", "score", "K/V tile", "Q", "O"):
        assert word in page and glossary.lookup(word) is not None, word


def test_no_name_stands_for_two_things() -> None:
    names = [name for term in glossary.TERMS for name in term.names]
    assert len(names) == len(set(names))
    folded = [name.casefold() for name in names]
    twice = {name for name in folded if folded.count(name) > 1}
    assert twice <= {"m", "i, j", "h", "l", "k"}, twice  # m and M differ by case alone, and look-ups know it


def test_entries_are_whole() -> None:
    for term in glossary.TERMS:
        assert term.meaning.endswith("."), term.name
        assert term.source == glossary.HERE or references.named(term.source) is not None, term.source
        assert set(term.also) < set(term.names)


def test_case_tells_the_maximum_from_the_memory() -> None:
    running, memory = glossary.lookup("m"), glossary.lookup("M")
    assert running is not None and memory is not None
    assert "maximum" in running.meaning and "elements" in memory.unit
    assert glossary.lookup("no such word") is None
    assert glossary.lookup("Shared Memory") is glossary.lookup("SMEM")


def test_search() -> None:
    assert sum(map(len, glossary.search("").values())) == len(glossary.TERMS)
    assert [t.name for terms in glossary.search("M").values() for t in terms] == ["M"]
    assert list(glossary.search("", "Memory")) == ["Memory"]
    assert glossary.search("zzz") == {}
    assert any(t.name == "LSE" for terms in glossary.search("natural logarithm").values() for t in terms)


def test_words_in_a_text_are_found_as_words() -> None:
    assert [t.name for t in glossary.in_text("Br and shared memory, not Brno")] == ["Br", "SMEM"]


# --- marks in prose -----------------------------------------------------------------------------------------------


def test_a_marked_word_carries_its_meaning_and_takes_the_focus() -> None:
    text, holds_html = marked("The [[shared memory]] of [[these|SM]].")
    assert holds_html and text.count('tabindex="0"') == 2
    shown = html.unescape(re.sub("<[^>]+>", "", text))
    assert shown.startswith("The shared memorySMEM (shared memory, SRAM): Fast memory")
    assert "theseSM: Streaming multiprocessor" in shown


def test_text_without_marks_is_left_alone() -> None:
    assert marked("a < b & <b>c</b> [link](x)") == ("a < b & <b>c</b> [link](x)", False)


def test_nothing_but_marks_becomes_html() -> None:
    text, _ = marked("<img src=x onerror=alert(1)> [[m]] &lt;b&gt; `a < b` <script>x</script>")
    tags = re.findall(r"<[^>]*>", text.replace("`a < b`", ""))
    assert {tag.split()[0].strip("</>") for tag in tags} == {"span"}
    assert "`a < b`" in text and "&lt;img" in text and "&amp;lt;b" in text


def test_shown_words_cannot_carry_markup() -> None:
    text, _ = marked('[[<b onclick="x">*m*</b>|m]]')
    assert "<b" not in text and 'onclick="' not in text and "*" not in text


def test_an_unknown_word_is_a_slip_of_the_author() -> None:
    with pytest.raises(FmhaError, match="glossary"):
        marked("[[nonsense]]")


def test_every_mark_in_the_pages_is_known() -> None:
    count = 0
    for path in [*ROOT.glob("pages/*/*.py"), *ROOT.glob("fmha/ui/*_box.py")]:
        for hit in re.finditer(r"\[\[([A-Za-z][^\[\]|\"]*)(?:\|([^\[\]|\"]+))?\]\]", path.read_text(encoding="utf-8")):
            if path.parts[-1] == "guided_lecture.py":
                continue
            assert glossary.lookup(hit[2] or hit[1]), (path.name, hit[0])
            count += 1
    assert count >= 15


# --- references ---------------------------------------------------------------------------------------------------


def test_every_paper_of_a_claim_is_a_reference() -> None:
    for claim in (*CLAIMS, *all_claims()):
        assert references.named(claim.paper) is not None, claim.paper


def test_a_longer_name_is_not_taken_for_a_shorter_one() -> None:
    found = references.named("FlashAttention-2, section 3.2")
    assert found is not None and found.key == "FlashAttention-2"
    assert references.named("nothing known") is None


def test_references_name_pages_that_exist() -> None:
    from app import MENU

    titles = {title for entries in MENU.values() for _, title in entries}
    for reference in references.REFERENCES:
        assert reference.places
        assert {place.page for place in reference.places} - {""} <= titles
        assert not reference.link or reference.link.startswith("https://")


# --- the API's reference ------------------------------------------------------------------------------------------


def test_every_public_name_is_there_with_signature_and_docstring() -> None:
    items = {item.name: item for item in apidoc.modules()["fmha"].items}
    assert set(items) == set(fmha.__all__)
    for name, item in items.items():
        thing = getattr(fmha, name)
        assert item.doc == inspect.getdoc(thing), name
        if inspect.isfunction(thing):
            names = list(inspect.signature(thing).parameters)
            assert re.findall(r"(\w+):", item.signature.split(") ->")[0]) == names, item.signature


def test_members_of_a_class_are_there() -> None:
    problem = next(item for item in apidoc.modules()["fmha"].items if item.name == "Problem")
    assert {"replace", "itemsize", "key_range"} <= {member.name for member in problem.members}
    assert not any(member.name.startswith("_") for member in problem.members)


def test_all_modules_are_read_and_none_is_run() -> None:
    known = apidoc.modules()
    files = {path for path in (ROOT / "fmha").rglob("*.py") if path.name != "__main__.py" and path.read_text().strip()}
    assert {ROOT / module.file for module in known.values()} == files
    assert "fmha.gpu.launch" in known and "fmha.trace.run" in known
    for module in known.values():
        assert module.doc, module.name
        for item in module.items:
            assert item.doc or item.kind == "constant" or not item.name[0].islower(), item.path


def test_search_finds_the_name_first() -> None:
    assert apidoc.find("closed_form")[0].path == "fmha.traffic.closed_form"
    assert apidoc.find("itemsize")[0].name == "itemsize"
    assert apidoc.find("") == [] and apidoc.find("zzzzzz") == []


def test_docstrings_become_markdown() -> None:
    text = apidoc.markdown(
        "One *line*.\n\nArgs:\n    a: first\n        and more\n    b: second\n\n    code [x]\n\n- `k` <b>"
    )
    assert text.startswith(r"One \*line\*.")
    assert "**Args**\n\n- `a`: first and more\n- `b`: second" in text
    assert "```text\n    code [x]\n```" in text
    assert r"- `k` \<b\>" in text
    assert issubclass(FmhaError, Base)


# --- on the command line --------------------------------------------------------------------------------------------


def test_words_on_the_command_line(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["words", "M"]) == 0
    assert "elements, not bytes" in capsys.readouterr().out
    assert main(["words", "natural", "logarithm"]) == 0
    assert capsys.readouterr().out.count("LSE") >= 1
    assert main(["words"]) == 0
    everything = capsys.readouterr().out
    assert all(f"\n{term.name}" in everything for term in glossary.TERMS)
    assert main(["words", "zzz"]) == 2
    assert len(capsys.readouterr().err.splitlines()) == 1


def test_the_help_says_where_to_begin_and_its_examples_run(capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit):
        main(["--help"])
    first = capsys.readouterr().out.split("begin here:")[1].split("more examples:")[0]
    examples = [line.split("  ")[1].split()[3:] for line in first.splitlines() if "python -m fmha" in line]
    assert len(examples) == 3
    for example in examples:
        assert main(example) == 0
