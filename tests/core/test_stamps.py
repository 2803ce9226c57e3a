"""Time stamps: where they go in a source, what is read from the buffer, and what a recording keeps."""

from __future__ import annotations

import json
import re
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from fmha import Problem, Tiling
from fmha.errors import InputError, ProblemError
from fmha.events import CODE, emit
from fmha.gpu.stamping import checked
from fmha.kernels import KERNELS
from fmha.phases import groups, phase_at, phases
from fmha.stamp_events import stamped_events
from fmha.stamp_files import MOST_BYTES, from_bytes, open_stamps, save
from fmha.stamps import HEAD, Stamps, as_facts, read_stamps, room_for, stamped

KERNEL = KERNELS["02"]
SOURCE = KERNEL.source()
RATE = 1.5  # cycles a nanosecond of the made-up clocks


def test_phases_are_those_of_the_comments() -> None:
    found = phases(SOURCE)
    assert [phase.code for phase in found] == [None, None, "S", "m", "P", "P", "O", "normalize", None]
    assert groups(found) == (0, 1, 2, 3, 4, 4, 5, 6, 7)
    lines = SOURCE.splitlines()
    for phase in found:
        assert lines[phase.first - 1].strip() == f"// {phase.maths}"
    scores = next(n for n, line in enumerate(lines, 1) if "score +=" in line)
    at = phase_at(found, scores)
    assert at is not None and at.maths == "S = QK^T"
    assert phase_at(found, 1) is None


def test_stamps_stand_in_place_of_the_comments_and_lines_keep_their_numbers() -> None:
    text = stamped(SOURCE, "fmha101", KERNEL.file)
    before, after = text.split(f'#line 1 "{KERNEL.file}"\n')
    made, lines = after.splitlines(), SOURCE.splitlines()
    assert "clock64" in before and len(made) == len(lines)
    changed = [n for n, (a, b) in enumerate(zip(lines, made, strict=True), 1) if a != b]
    assert {phase.first for phase in phases(SOURCE)} < set(changed)
    assert len(changed) == len(phases(SOURCE)) + 2  # and the beginning and the end of the function
    assert [int(n) for n in re.findall(r"FMHA_CLOCK\(\) << 8 \| (\d+)", after)] == list(range(len(phases(SOURCE))))


def words(p: Problem, t: Tiling, room: int, sms: int = 3) -> np.ndarray:
    """What a stamped kernel would write if phase n took (n + 1) x 100 ns; 50 ns pass before the first."""
    table = emit(p, t)
    order = [CODE[c] for c in ("load_Q", "load_K", "S", "m", "P", "O", "normalize")]
    source = {CODE["load_Q"]: 0, CODE["load_K"]: 1, CODE["S"]: 2, CODE["m"]: 3, CODE["O"]: 6, CODE["normalize"]: 7}
    workers = int(table["worker"].max()) + 1
    buffer = np.full((workers, HEAD + room), 2**64 - 1, np.uint64)
    for worker in range(workers):
        start_ns, start_clock = 1_000_000 + 40 * worker, 7_000 * (worker % sms) + round(40 * worker * RATE)
        now, stamps = 50.0, []
        for code in table["phase"][table["worker"] == worker]:
            if code not in order:
                continue
            for number in [4, 5] if code == CODE["P"] else [source[int(code)]]:
                stamps.append(round(start_clock + now * RATE) << 8 | number)
                now += 100.0 * (number + 1)
        stamps.append(round(start_clock + now * RATE) << 8 | 8)  # LSE
        head = [
            worker % sms * 2,
            start_ns,
            start_clock,
            start_ns + round(now),
            start_clock + round(now * RATE),
            len(stamps),
        ]
        buffer[worker, : HEAD + len(stamps)] = [*head, *stamps]
    return buffer


@pytest.mark.parametrize("causal", [None, "bottom-right"])
def test_stamps_become_the_event_table_with_measured_times(causal: str | None, tmp_path: Path) -> None:
    p, t = Problem(N=40, d=8, H=2, causal=causal), Tiling(16, 8)
    stamps = kept(p, t)
    save(stamps, tmp_path / "x.npz")
    again = open_stamps(tmp_path / "x.npz")
    assert again.problem == p and again.tiling == t and again.facts == stamps.facts
    for one in (stamps, again):
        table = stamped_events(one, SOURCE)
        plain = emit(p, t)
        for column in ("worker", "phase", "b", "h", "i", "j", "nbytes", "flops"):
            assert np.array_equal(table[column], plain[column])
        assert np.array_equal(table["sm"], table["worker"] % 3)  # 0, 2, 4 are numbered 0, 1, 2
        mine = table[table["worker"] == 1]
        took = mine["t1"] - mine["t0"]
        assert mine["t0"][0] == pytest.approx(0.040 + 0.050, abs=2e-3)
        assert took[mine["phase"] == CODE["S"]] == pytest.approx(0.3, abs=2e-3)
        assert took[mine["phase"] == CODE["P"]] == pytest.approx(0.5 + 0.6, abs=2e-3)  # two comments, one phase
        loads = np.isin(mine["phase"], [CODE["load_K"], CODE["load_V"]])
        assert took[loads] == pytest.approx(0.1, abs=2e-3)  # of 0.2 together: as many bytes in K as in V
        assert (mine["t0"][1:] >= mine["t1"][:-1] - 1e-9).all()


def test_what_does_not_fit_is_refused(tmp_path: Path) -> None:
    p, t = Problem(N=16, d=8), Tiling(8, 8)
    whole = words(p, t, 64)
    with pytest.raises(InputError, match="not whole"):
        read_stamps(np.full_like(whole, 2**64 - 1), 2, {})
    with pytest.raises(InputError, match="no room"):
        short = whole.copy()
        short[:, 5] = 64
        read_stamps(short, 2, {})
    stamps = read_stamps(whole, 2, as_facts(p, t))
    other = Stamps(as_facts(p.replace(N=24), t), *(getattr(stamps, n) for n in list(Stamps.__dataclass_fields__)[1:]))
    with pytest.raises(InputError, match="another one"):
        stamped_events(other, SOURCE)


def test_a_long_block_lasts_as_the_shared_time_says_and_a_short_one_as_its_clock() -> None:
    """Clocks of SMs differ a little; the shared time moves in steps."""
    p, t = Problem(N=40, d=8, H=4), Tiling(16, 8)
    exact = words(p, t, 64)
    fast = exact.copy()
    fast[5, [2, 4]] = fast[5, [2, 4]] * 2  # one SM's clock runs twice as fast
    fast[5, HEAD : HEAD + int(fast[5, 5])] = (fast[5, HEAD : HEAD + int(fast[5, 5])] >> 8 << 9) | (
        fast[5, HEAD : HEAD + int(fast[5, 5])] & 255
    )
    a, b = (read_stamps(buffer, 12, as_facts(p, t)) for buffer in (exact, fast))
    assert a.end_us[5] - a.begin_us[5] < 1000 * 0.04  # short in steps of 40 ns
    assert b.end_us[5] - b.begin_us[5] > 1.5 * (a.end_us[5] - a.begin_us[5])
    for buffer in (exact, fast):
        buffer[0, 1], buffer[0, 3] = buffer[1, 1] - 1, buffer[1, 3] - 1  # steps of 1 ns: now it is long
    a, b = (read_stamps(buffer, 12, as_facts(p, t)) for buffer in (exact, fast))
    assert b.end_us[5] - b.begin_us[5] == pytest.approx(a.end_us[5] - a.begin_us[5], rel=0.01)
    mine = slice(int(b.first[5]), int(b.first[6]))
    assert b.at_us[mine] == pytest.approx(a.at_us[mine], abs=0.01)


def kept(p: Problem, t: Tiling) -> Stamps:
    """A recording that a file can hold."""
    names = ("device", "driver", "cuda", "made", "kernel", "source", "input")
    facts = as_facts(p, t, sms=5, phases=[phase.maths for phase in phases(SOURCE)], **dict.fromkeys(names, "02"))
    return read_stamps(words(p, t, 64), p.B * p.H * t.Tr(p), facts)


def test_a_recording_names_its_own_phases(tmp_path: Path) -> None:
    stamps = kept(Problem(N=40, d=8), Tiling(16, 8))
    save(stamps, tmp_path / "x.npz")
    a, b = stamped_events(stamps, SOURCE), stamped_events(open_stamps(tmp_path / "x.npz"))
    assert np.array_equal(a["phase"], b["phase"]) and np.allclose(a["t0"], b["t0"], atol=2e-3)


def test_files_are_read_strictly(tmp_path: Path) -> None:
    stamps = kept(Problem(N=40, d=8), Tiling(16, 8))
    save(stamps, tmp_path / "x.npz")
    whole = dict(np.load(tmp_path / "x.npz"))
    facts = json.loads(whole["facts"].tobytes())
    wrong: list[dict[str, Any]] = [
        {"phase": whole["phase"][:-1]}, {"phase": whole["phase"] + 20}, {"counts": -whole["counts"]},
        {"sm": whole["sm"] + 5}, {"sm": whole["sm"].astype(np.float64)}, {"sm": whole["sm"][:, None]},
        {"end_ns": whole["begin_ns"] - 1}, {"steps_ns": -whole["steps_ns"]}, {"begin_ns": whole["begin_ns"][1:]},
        *({"facts": {**facts, key: value}} for key, value in [
            ("problem", {"N": -1}), ("problem", 3), ("tiling", {}), ("device", 7), ("phases", "S"), ("sms", None),
            ("problem", {"N": 41, "d": 8, "H": 2}),
        ]),
    ]  # fmt: skip
    for change in wrong:
        data = {**whole, **change}
        if isinstance(data["facts"], dict):
            data["facts"] = np.frombuffer(json.dumps(data["facts"]).encode(), np.uint8)
        np.savez_compressed(tmp_path / "y.npz", **data)
        with pytest.raises(InputError, match=r"y\.npz is not a recording"):
            open_stamps(tmp_path / "y.npz")
    for garbage in (b"", b"PK no", (tmp_path / "x.npz").read_bytes()[:500], b"\x93NUMPY"):
        with pytest.raises(InputError, match="not a recording"):
            from_bytes(garbage)
    np.savez_compressed(tmp_path / "z.npz", **{**whole, "more": np.zeros(MOST_BYTES, np.uint8)})
    with pytest.raises(InputError, match="not a recording"):
        open_stamps(tmp_path / "z.npz")
    with pytest.raises(InputError, match="cannot be read"):
        open_stamps(tmp_path / "missing.npz")


def test_the_turns_of_a_phase_are_added_up() -> None:
    """A kernel whose threads own several rows comes back to m and P at each visit, and to LSE after O."""
    p, t = Problem(N=8, d=8), Tiling(8, 8)
    source = KERNELS["06"].source()
    order = [0, 1, 2, 3, 4, 3, 4, 5, 6, 7, 7]  # Q; K, V; S; m, P; m, P; O; O / l; LSE, LSE
    took = [10.0, 20, 30, 1, 2, 3, 4, 50, 60, 7, 7]
    at = 5.0 + np.cumsum([0.0, *took])
    stamps = Stamps(
        as_facts(p, t), np.array([9], np.int32), np.array([0.0]), at[-1:], np.array([0, len(order)]), at[:-1],
        np.array(order, np.uint8),
    )  # fmt: skip
    table = stamped_events(stamps, source)
    spans = {code: table[table["phase"] == CODE[code]][0] for code in ("load_Q", "S", "m", "P", "O", "store_O")}
    assert spans["load_Q"]["t0"] == 5 and spans["S"]["t1"] == 5 + 60
    assert (spans["m"]["t0"], spans["m"]["t1"]) == (65, 65 + 1 + 3)
    assert (spans["P"]["t0"], spans["P"]["t1"]) == (69, 69 + 2 + 4)
    assert (spans["O"]["t0"], spans["O"]["t1"]) == (75, 125)
    assert spans["store_O"]["t1"] == pytest.approx(125 + 60 + 14)  # LSE is no phase of the table


def test_there_is_room_for_the_stamps_of_many_rows() -> None:
    p = Problem(N=100, d=8)
    assert room_for(p, Tiling(32, 32), 1024) >= 8 * 4 + 8
    assert room_for(p, Tiling(64, 32), 256) >= (4 + 3 * 8) * 4 + 8


def test_a_kernel_that_does_several_phases_at_once_is_refused() -> None:
    """Its stamps are read, but they are no timeline: S comes after P."""
    p, t = Problem(N=8, d=8), Tiling(8, 8)
    names = [phase.maths for phase in phases(KERNELS["07"].source())]
    order = np.arange(len(names), dtype=np.uint8)
    order[[2, 5]] = order[[5, 2]]
    stamps = Stamps(
        as_facts(p, t, kernel="07", phases=names), np.zeros(1, np.int32), np.zeros(1), np.array([99.0]),
        np.array([0, len(order)]), order.astype(np.float64), order,
    )  # fmt: skip
    with pytest.raises(ProblemError, match="kernel 07 does not go through its phases in the order of the events"):
        checked(stamps)
    assert checked(kept(p, t)).problem == p
