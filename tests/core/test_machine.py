"""The strict machine: equal to the replay event by event, and every illegal event table is caught."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
import pytest
from hypothesis import assume, given, settings
from hypothesis import strategies as st

from fmha import Problem, Tiling, reference, simulate
from fmha.errors import InputError, SimulationError
from fmha.events import CODE, PHASES, emit
from fmha.machine import Machine
from fmha.memory import smem_bytes
from fmha.schedule import ORDERS
from tests.core.yardstick import normal, problems, running, tile_rows, tilings

Table = np.ndarray
FLASH = ("q-outer", "kv-outer")


def machine_of(p: Problem, t: Tiling, order: str, **more: object) -> Machine:
    return Machine(p, t, *normal(p), order, **more)  # type: ignore[arg-type]


# --- agreement ------------------------------------------------------------------------------------------------------


@settings(max_examples=60)
@given(problems(10), tilings(), st.sampled_from(ORDERS), st.sampled_from(["float64", "dtype"]), st.booleans())
def test_output_equals_replay(p: Problem, t: Tiling, order: str, precision: str, write_lse: bool) -> None:
    Q, K, V = normal(p)
    run = simulate(p, t, Q, K, V, order, precision=precision, write_lse=write_lse)
    machine = Machine(p, t, Q, K, V, order, precision).run(run.events)  # type: ignore[arg-type]
    step = {"fp32": 2e-6, "fp16": 2e-3, "bf16": 1.6e-2}[p.dtype] if precision == "dtype" else 1e-12
    np.testing.assert_allclose(machine.output(), run.O, rtol=step, atol=step)
    if write_lse and order == "q-outer":
        np.testing.assert_allclose(machine.hbm["LSE"], run.LSE, rtol=1e-5 if precision == "dtype" else 1e-12)


@settings(max_examples=40)
@given(problems(8), tilings(), st.sampled_from(FLASH))
def test_state_after_every_event(p: Problem, t: Tiling, order: str) -> None:
    """m after "m_new = ...", l after "P = ...", alpha after both, O after the last visit."""
    Q, K, V = normal(p)
    m, l, alpha = running(p, t, Q, K)
    machine = Machine(p, t, Q, K, V, order)  # type: ignore[arg-type]
    truth = reference(p, Q, K, V).O
    for event in emit(p, t, order):
        machine.step(event)
        code, slots = PHASES[event["phase"]].code, machine.smem[int(event["worker"])]
        b, h, i, j = (int(event[name]) for name in "bhij")
        rows = list(tile_rows(p, t, i))
        if code in ("m", "P"):
            np.testing.assert_allclose(slots["m"][1], m[b, h, rows, j], rtol=1e-12, atol=1e-12)
            np.testing.assert_allclose(slots["alpha"][1], alpha[b, h, rows, j], rtol=1e-12)
        if code == "P":
            np.testing.assert_allclose(slots["l"][1], l[b, h, rows, j], rtol=1e-12)
        if code == "store_O" and order == "q-outer":
            np.testing.assert_allclose(slots["O"][1], truth[b, h, rows], rtol=1e-12, atol=1e-12)


@pytest.mark.parametrize("order", FLASH)
def test_state_at_any_event(order: str) -> None:
    p, t = Problem(H=2, N=6, d=3), Tiling(2, 3)
    run = simulate(p, t, *normal(p), order)
    for index, event in enumerate(run.events):
        state = run.state_at(index)
        assert state.worker == event["worker"]
        if PHASES[event["phase"]].code in ("O", "O_norm"):
            rows = slice(2 * int(event["i"]), 2 * int(event["i"]) + 2)
            where = (int(event["b"]), int(event["h"]), rows, int(event["j"]))
            assert state.m is not None and state.l is not None and state.alpha is not None
            np.testing.assert_allclose(state.m, run.m[where], rtol=1e-13)
            np.testing.assert_allclose(state.l, run.l[where], rtol=1e-13)
            np.testing.assert_allclose(state.alpha, run.alpha[where], rtol=1e-13)
            assert set(state.smem) == {"Q", "K", "V", "S"}
    assert run.state_at(0).m is None
    for wrong in (-1, len(run.events), 1.5):
        with pytest.raises(InputError, match="event="):
            run.state_at(wrong)  # type: ignore[arg-type]
    with pytest.raises(InputError, match="naive"):
        simulate(p, t, *normal(p), "naive").state_at(0)


@pytest.mark.parametrize("order", FLASH)
def test_workers_may_interleave(order: str) -> None:
    p, t = Problem(B=2, H=2, N=8, d=3), Tiling(2, 2)
    Q, K, V = normal(p)
    run = simulate(p, t, Q, K, V, order, sms=3)
    by_time = run.events[np.argsort(run.events["t0"], kind="stable")]
    assert (np.diff(by_time["worker"]) < 0).any()
    np.testing.assert_allclose(Machine(p, t, Q, K, V, order).run(by_time).output(), run.O, rtol=1e-12)  # type: ignore[arg-type]


# --- illegal tables -------------------------------------------------------------------------------------------------


def first(events: Table, code: str) -> int:
    return int(np.flatnonzero(events["phase"] == CODE[code])[0])


def second_tile(events: Table, code: str) -> int:
    return int(np.flatnonzero((events["phase"] == CODE[code]) & (events["j"] == 1))[0])


def drop(code: str) -> Callable[[Table], Table]:
    return lambda events: np.delete(events, first(events, code))


def drop_second(code: str) -> Callable[[Table], Table]:
    return lambda events: np.delete(events, second_tile(events, code))


def double(code: str) -> Callable[[Table], Table]:
    return lambda events: np.insert(events, first(events, code), events[first(events, code)])


def change(code: str, column: str, value: int) -> Callable[[Table], Table]:
    def mutate(events: Table) -> Table:
        out = events.copy()
        out[column][first(events, code)] = value
        return out

    return mutate


ILLEGAL = [
    *[("q-outer", drop(code), "reads") for code in ("load_Q", "load_K", "load_V")],
    ("q-outer", drop_second("load_K"), r"reads K of tile \(0, 0, 1\), but the resident K is tile \(0, 0, 0\)"),
    ("q-outer", drop_second("load_V"), r"reads V of tile .*resident V is tile"),
    ("q-outer", drop("S"), 'must follow "S = Qi Kj'),
    ("q-outer", drop("m"), 'must follow "m_new = max'),
    ("q-outer", drop("P"), 'must follow "P = exp'),
    ("q-outer", drop_second("S"), 'must follow "S = Qi Kj'),
    ("q-outer", drop_second("m"), 'must follow "m_new = max'),
    ("q-outer", drop_second("P"), 'must follow "P = exp'),
    ("q-outer", drop("normalize"), 'must follow "O = O / l"'),
    ("q-outer", double("m"), "must follow"),
    ("q-outer", double("P"), "must follow"),
    ("q-outer", double("O"), "must follow"),
    ("q-outer", change("load_K", "j", 1), "K of tile"),
    ("q-outer", change("load_Q", "i", 1), "Q of tile"),
    ("q-outer", change("load_K", "j", 99), "j=99 is out of range 0 to"),
    ("q-outer", change("load_K", "j", -1), "j=-1 is out of range"),
    ("q-outer", change("S", "j", -1), "j=-1 is out of range"),
    ("q-outer", change("load_Q", "j", -2), "j=-2 is out of range"),
    ("q-outer", change("store_O", "i", -1), "i=-1 is out of range"),
    ("q-outer", change("load_Q", "b", 7), "b=7 is out of range"),
    ("q-outer", change("load_Q", "h", -1), "h=-1 is out of range"),
    ("q-outer", change("load_Q", "worker", 5), "reads Q, but worker 0 has not loaded it"),
    ("q-outer", change("load_V", "nbytes", 12345), "says 12345 bytes, but the tile of V has 24"),
    ("q-outer", change("store_O", "nbytes", 0), "says 0 bytes, but the tile of O has"),
    ("q-outer", change("S", "phase", 250), r"phase=250 is out of range 0 to \d+"),
    ("q-outer", change("load_K", "phase", CODE["load_P"]), "loads P, but nothing has written P to HBM"),
    ("kv-outer", drop("init_O"), "loads a tile of O that nothing has written"),
    ("kv-outer", drop("init_l"), "loads a tile of l that nothing has written"),
    ("kv-outer", drop("init_m"), "loads a tile of m that nothing has written"),
    *[("kv-outer", drop_second(code), "reads") for code in ("load_K", "load_V", "load_Q", "load_O", "load_l")],
    ("kv-outer", drop_second("load_m"), "reads m of tile"),
    ("kv-outer", drop("S"), 'must follow "S = Qi Kj'),
    ("kv-outer", double("O_norm"), "must follow"),
    ("naive", drop("store_S"), "loads a tile of S that nothing has written"),
    ("naive", drop("store_P"), "loads a tile of P that nothing has written"),
    ("naive", drop("load_S"), "reads S"),
    ("naive", drop("load_P"), "reads P"),
    ("naive", drop("load_V"), "reads V"),
    ("naive", drop("load_K"), "reads K"),
    ("naive", drop("softmax"), "reads P"),
]


@pytest.mark.parametrize(("order", "mutate", "words"), ILLEGAL)
def test_illegal_tables_raise(order: str, mutate: Callable[[Table], Table], words: str) -> None:
    p, t = Problem(N=8, d=3), Tiling(2, 2)
    with pytest.raises(SimulationError, match=words) as caught:
        machine_of(p, t, order).run(mutate(emit(p, t, order)))
    assert "\n" not in str(caught.value)
    machine_of(p, t, order).run(emit(p, t, order))


@pytest.mark.parametrize("order", ORDERS)
def test_rows_that_were_never_stored(order: str) -> None:
    p, t = Problem(N=8, d=3), Tiling(2, 2)
    events = emit(p, t, order)
    stores = np.isin(events["phase"], [CODE["store_O"], CODE["init_O"]])
    wanted = "some rows of O" if order != "kv-outer" else "all rows of O|loads"
    with pytest.raises(SimulationError, match=wanted):
        machine_of(p, t, order).run(events[~(stores & (events["i"] == 2))]).output()
    with pytest.raises(SimulationError, match="all rows of O were never stored"):
        machine_of(p, t, order).output()


@settings(max_examples=100)
@given(problems(8), tilings(), st.sampled_from(FLASH), st.data())
def test_dropping_any_event_of_a_visit_is_caught(p: Problem, t: Tiling, order: str, data: st.DataObject) -> None:
    """A missing load, formula or store is never silent: it raises, or rows stay unwritten, or O is not what it was."""
    Q, K, V = normal(p)
    events = emit(p, t, order)
    victim = data.draw(st.integers(0, len(events) - 1))
    code = PHASES[events["phase"][victim]].code
    assume(code not in ("load_l", "load_m", "load_O", "store_l", "store_m"))  # a lone K/V tile rereads what it has
    whole = Machine(p, t, Q, K, V, order).run(events).output()  # type: ignore[arg-type]
    try:
        broken = Machine(p, t, Q, K, V, order).run(np.delete(events, victim)).output()  # type: ignore[arg-type]
    except SimulationError:
        return
    unread = code in ("load_Q", "init_O", "init_l", "init_m", "load_V", "load_K")
    assert not np.array_equal(whole, broken) or unread or (whole == 0).all() or order == "kv-outer"


# --- shared memory --------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("tile", [(2, 2), (3, 5), (8, 4)])
@pytest.mark.parametrize("dtype", ["fp32", "fp16"])
def test_shared_memory_limit(tile: tuple[int, int], dtype: str) -> None:
    """The kernel's layout is just enough: what the machine holds at its peak, and l once more while it changes."""
    p, t = Problem(N=24, d=6, dtype=dtype), Tiling(*tile)
    events = emit(p, t)
    peak = machine_of(p, t, "q-outer").run(events).peak_smem_bytes
    assert peak - 4 * t.Br <= smem_bytes(t, p.d, p.itemsize) <= peak
    machine_of(p, t, "q-outer", smem_limit_bytes=peak).run(events)
    with pytest.raises(
        SimulationError, match=rf"holds {peak} bytes of shared memory, 1 more than the {peak - 1} allowed"
    ):
        machine_of(p, t, "q-outer", smem_limit_bytes=peak - 1).run(events)


def test_tags_keep_batches_and_heads_apart() -> None:
    """A K tile of another head that has the same bytes is still the wrong tile."""
    p, t = Problem(B=2, H=2, N=4, d=2), Tiling(2, 2)
    events = emit(p, t)
    for column in "bh":
        wrong = events.copy()
        wrong[column][first(events, "load_K")] = 1
        with pytest.raises(SimulationError, match="reads K of tile"):
            machine_of(p, t, "q-outer").run(wrong)
