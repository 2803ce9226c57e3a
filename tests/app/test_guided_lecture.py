"""The guided lecture under AppTest: every step of the shipped deck, questions, own decks, links from hostile hands."""

from __future__ import annotations

from pathlib import Path

import pytest
from streamlit.testing.v1 import AppTest

from fmha import ladder
from fmha.kernels import KERNELS
from fmha.lecture.library import FIRST, decks, load
from fmha.lecture.pictures import PICTURES
from fmha.picture.book import parts
from fmha.picture.parts import Chart, Note
from tests.app.controls_support import control
from tests.ladder_support import ladder_recording

ROOT = Path(__file__).resolve().parent.parent.parent
STEPS = load(decks()[FIRST]).steps
ASKS = [number for number, step in enumerate(STEPS, 1) if step.question is not None]


def lecture(**query: str) -> AppTest:
    at = AppTest.from_file(ROOT / "pages/learn/guided_lecture.py", default_timeout=60)
    for name, text in query.items():
        at.query_params[name] = text
    at.run()
    assert not at.exception, [e.value for e in at.exception]
    return at


def headings(at: AppTest) -> list[str]:
    return [h.value for h in at.header]


@pytest.mark.parametrize("number", range(1, len(STEPS) + 1))
def test_every_step_has_a_link_and_shows_no_error(number: int) -> None:
    at = lecture(step=str(number))
    assert headings(at)[0].replace("\\", "") == STEPS[number - 1].title
    assert not at.error and not at.warning
    assert at.query_params["step"] == str(number)


@pytest.mark.parametrize("number", ASKS)
def test_a_question_is_revealed_and_then_shown_in_the_picture(number: int) -> None:
    at = lecture(step=str(number))
    assert "Predict" in headings(at) and not at.success
    at.radio[0].set_value(0).run()
    assert not at.success, "choosing reveals nothing"
    at.button(key="lecture-reveal").click().run()
    assert not at.exception and not at.error
    said = at.success[0].value
    assert "prediction" in said
    assert "Try this" in headings(at)
    again = lecture(step=str(number))
    assert not again.success, "a link opens a question unanswered"


def test_the_answer_follows_a_live_control() -> None:
    number = next(n for n in ASKS if STEPS[n - 1].picture.name == "traffic")
    at = lecture(step=str(number), set_Br="64")
    at.button(key="lecture-reveal").click().run()
    assert "Br = 128" in at.success[0].value
    assert at.query_params["set_Br"] == "64"


def test_a_change_that_is_not_on_offer_is_said_in_a_sentence() -> None:
    number = next(n for n in ASKS if STEPS[n - 1].picture.name == "traffic")
    at = lecture(step=str(number), set_Br="256")
    assert any("Br" in i.value for i in at.info)
    assert not at.exception


def test_live_controls_stand_where_the_deck_says_on_every_arrival() -> None:
    number = next(n for n in ASKS if STEPS[n - 1].picture.name == "traffic")
    at = lecture(step=str(number), set_Br="64")
    step = next(s for s in at.selectbox if s.label == "Step")
    step.set_value("3").run()
    step = next(s for s in at.selectbox if s.label == "Step")
    step.set_value(str(number)).run()
    slider = control(at, "set_Br")
    assert slider.value == STEPS[number - 1].settings["Br"]
    assert "set_Br" not in at.query_params


@pytest.mark.parametrize(
    "query",
    [
        {"step": "99"}, {"step": "<b>"}, {"step": "0"}, {"deck": "../../etc/passwd"}, {"deck": "none"},
        {"present": "7"}, {"step": "2", "set_word": "999"}, {"notes": "x"}, {"set_nonsense": "1", "step": "3"},
    ],
    ids=str,
)  # fmt: skip
def test_hostile_links_open(query: dict[str, str]) -> None:
    at = lecture(**query)
    assert at.title[0].value == "Guided lecture"
    assert len(at.warning) <= 1 and not at.error


MINE = """---
deck: Mine
---
---
title: Small tiles
picture: player
N: 16
Br: 4
Bc: 4
phase: O
Q_tile: 1
KV_tile: 2
---
One sentence.
---
title: Later
picture: none
---
Another one.
"""


def test_an_own_deck_opens_by_its_name(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("FMHA_DECKS", str(tmp_path))
    (tmp_path / "mine.md").write_text(MINE)
    at = lecture(deck="mine")
    assert headings(at)[0] == "Small tiles" and not at.error
    assert at.query_params["deck"] == "mine"
    (tmp_path / "mine.md").write_text(MINE.replace("Small tiles", "Smaller tiles"))
    assert headings(at.run())[0] == "Smaller tiles", "an edited file is read again"
    (tmp_path / "mine.md").write_text(MINE.replace("Br: 4", "Br: <script>"))
    assert len(at.run().error) == 1, "and so is one that was spoiled"


def test_every_picture_can_be_in_a_deck(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """With the settings that it has if a deck gives none, presented."""
    monkeypatch.setenv("FMHA_DECKS", str(tmp_path))
    steps = "".join(f"---\ntitle: On {name}\npicture: {name}\n---\nOne sentence.\n" for name in PICTURES)
    (tmp_path / "all.md").write_text(f"---\ndeck: All\n---\n{steps}")
    for number, name in enumerate(PICTURES, 1):
        at = lecture(deck="all", step=str(number), present="1")
        assert headings(at)[0] == f"On {name}" and not at.error and not at.exception, name


def test_the_ladder_is_drawn_where_it_was_recorded(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    shapes = [ladder.problem(4096, 64, None, dtype) for dtype in ("fp32", "bf16")]
    made = (ladder_recording(shapes),)
    monkeypatch.setattr(ladder, "shipped", lambda: made)
    there, absent = ([*parts(PICTURES["ladder"], {"N": N, "d": 64, "causal": "none"})]
                     for N in (4096, 8192))  # fmt: skip
    (chart,) = (part for part in there if isinstance(part, Chart))
    assert all(f"{number} " in chart.alt for number, k in KERNELS.items() if {"fp32", "bf16"} & set(k.dtypes))
    assert len(absent) == 1 and isinstance(absent[0], Note)


def test_a_timeline_of_too_many_events_is_told(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("FMHA_DECKS", str(tmp_path))
    step = "---\ntitle: Much\npicture: timeline\nN: 4096\nH: 64\nBr: 16\n---\nOne sentence.\n"
    (tmp_path / "much.md").write_text(f"---\ndeck: Much\n---\n{step}")
    at = lecture(deck="much")
    assert len(at.error) == 1 and "try a smaller" in at.error[0].value


def test_a_mistake_in_an_own_deck_is_told_with_its_line(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("FMHA_DECKS", str(tmp_path))
    (tmp_path / "mine.md").write_text(MINE.replace("Br: 4", "Br: <script>"))
    at = lecture(deck="mine")
    assert len(at.error) == 1 and "ine 8" in at.error[0].value
    (tmp_path / "mine.md").write_text(MINE)
    assert headings(lecture(deck="mine"))[0] == "Small tiles", "mended, it opens"


def test_a_moment_that_does_not_occur_is_said(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("FMHA_DECKS", str(tmp_path))
    (tmp_path / "mine.md").write_text(MINE.replace("KV_tile: 2", "KV_tile: 60"))
    at = lecture(deck="mine")
    assert len(at.error) == 1 and "does not occur" in at.error[0].value


def test_an_uploaded_deck_is_shown_for_this_visit() -> None:
    at = lecture()
    at.file_uploader[0].upload("mine.md", MINE.encode(), "text/markdown").run()
    assert not at.exception and headings(at)[0] == "Small tiles"
    at.button(key="lecture-close").click().run()
    assert headings(at)[0].replace("\\", "") == STEPS[0].title


def test_an_upload_that_is_no_deck_is_refused_in_a_sentence() -> None:
    at = lecture()
    at.file_uploader[0].upload("mine.md", b"\xff\xfe\x00", "text/markdown").run()
    assert not at.exception and len(at.error) == 1
    at.file_uploader[0].upload("other.md", b"# A talk\n", "text/markdown").run()
    assert not at.exception and len(at.error) == 1 and "ine 1" in at.error[0].value


def test_the_speakers_window_draws_no_picture() -> None:
    at = lecture(step="5", notes="1")
    assert headings(at) == [] and not at.error
    assert at.query_params["notes"] == "1"
