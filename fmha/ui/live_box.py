"""The box of a live run: the button, the run under way, a run that failed, or why there is none on this machine."""

from __future__ import annotations

import streamlit as st

from fmha.gpu.diagnosis import Diagnosis
from fmha.ui import cards, live, sentences
from fmha.ui.kernel_settings import Target, said_settings
from fmha.ui.page import configuration, plain

POLL_S = 0.4
WHICH = "kernel-lab-which"  # key of the choice between one's own run and a recording
OWN, RECORDED = "Your run", "Recording"


def collect(desk: live.Desk) -> bool:
    """Take over what a finished request brought, and show it; whether there was one."""
    finished = desk.collect()
    if finished:
        st.session_state.pop(WHICH, None)
    return finished


def live_box(asked: live.Asked, machine: Diagnosis | None, target: Target, wrong: str | None) -> None:
    """The button, the run under way, or what stands between this machine and a run. wrong: why it cannot be run."""
    desk = live.desk_in(st.session_state)
    if machine is not None and not machine.ready:
        cards.findings(machine)
        return
    known = target.known
    waiting = known is None and target.why is None
    if waiting or desk.ticket is not None:
        st.fragment(_progress, run_every=POLL_S)(asked)
    elif known is None:
        st.error(plain(target.why or ""))
        st.button("Try again", on_click=live.ask_again, args=(asked.device, live.OPS))
    else:
        st.button(
            f"Run on {sentences.one_line(known.device.facts.name, 60)}", type="primary", width="stretch", key="run",
            disabled=wrong is not None, on_click=desk.run, args=(asked, live.OPS),
        )  # fmt: skip
    if machine is not None:
        cards.notes(machine)
    if desk.trouble is not None and desk.ticket is None:
        _trouble(desk.trouble)


def _progress(asked: live.Asked) -> None:
    """Look after what is under way; when it has ended the page is drawn again with the result."""
    desk = live.desk_in(st.session_state)
    ticket = desk.ticket
    if ticket is None or desk.asked is None:
        machine = live.machine(0.0)
        if machine is not None and (not machine.ready or live.described(asked.device, live.OPS) is not None):
            st.rerun()
        st.progress(0.0, text="Looking for a GPU on this machine" if machine is None else "Starting the GPU process")
        return
    if collect(desk):
        st.rerun()
    text, fraction = ticket.progress
    state, ahead = ticket.state, ticket.position
    words = {"queued": f"In the queue, {ahead} before yours", "starting": "Starting the GPU process"}.get(state)
    st.progress(
        min(max(fraction or 0.0, 0.0), 1.0), text=words or plain(f"{text or 'Running'} · {ticket.running_s:.0f} s")
    )
    st.button("Cancel", key="cancel", width="stretch", on_click=_give_up)
    if desk.asked != asked:
        st.markdown("This run is for other settings than those above:")
    configuration(**said_settings(desk.asked))


def _give_up() -> None:
    """Cancel, and wait the moment that it takes."""
    desk = live.desk_in(st.session_state)
    if desk.ticket is not None:
        desk.ticket.cancel()
        desk.ticket.wait(0.9)


def _trouble(what: live.Trouble) -> None:
    """A request without a result: its settings, a sentence, and the compiler's or the worker's words."""
    (st.info if what.cancelled else st.error)(plain(what.text[0].upper() + what.text[1:]))
    configuration(**said_settings(what.asked))
    for title, text in (("Compiler's command and output", f"{what.command}\n\n{what.output}"), ("Log", what.log)):
        if text.strip():
            with st.expander(title):
                st.code(text.strip()[-8000:], language=None, wrap_lines=True)


def counters_button(outcome: live.Outcome) -> None:
    """Read what Nsight Compute can, where it can."""
    known = live.described(outcome.asked.device, live.OPS)
    if not isinstance(known, live.Described):
        return
    if known.counters is not None:
        st.markdown(plain(known.counters))
        return
    desk = live.desk_in(st.session_state)
    st.button(
        "Read hardware counters", key="counters", disabled=desk.ticket is not None,
        on_click=desk.count, args=(outcome.asked, live.OPS),
    )  # fmt: skip
