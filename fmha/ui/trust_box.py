"""The box that says how far the model of bytes and time can be trusted."""

from __future__ import annotations

import streamlit as st

from fmha.forecast import MODELLED
from fmha.measurement import shipped
from fmha.model_errors import STATED, Off, against
from fmha.model_facts import (
    ERRORS_OF_THE_MODEL,
    FITTED,
    HOW_THE_MODEL_WORKS,
    LIMITS_OF_THE_MODEL,
)
from fmha.model_facts_tiled import FITTED_TILED, HOW_TILED_WORKS, LIMITS_TILED, later_sentence, tiled_error
from fmha.model_record import again_sentence, blind_sentence, since_then
from fmha.ui import controls
from fmha.ui.hood_words import LEVEL_NAMES
from fmha.visit_costs import COSTED


def trust_box(number: str) -> None:
    """What the model does and does not do. number: of the kernel that is looked at."""
    st.header("How far to trust this", anchor=False)
    runs = sum(1 for r in shipped() for run in r.runs for e in run.entries if e.name in MODELLED and e.counters)
    names = " and ".join(sorted({recording.device.gpu.name for recording in shipped()}))
    errors = {error.what: (error.median, error.largest) for error in ERRORS_OF_THE_MODEL}
    errors |= {LEVEL_NAMES[level]: both for level, both in STATED.items()}
    st.markdown(
        f"Against {runs} recorded runs of kernels 01 and 02 on {names}: "
        + "; ".join(
            f"**{what}** "
            + (
                f"within {100 * worst:.2g} %, half of them within {100 * median:.2g} %"
                if worst
                else "equal to the byte"
            )
            for what, (median, worst) in errors.items()
        )
        + ". The model's free numbers were fitted to such runs, so expect more elsewhere."
    )
    st.markdown(f"**The hardest tests so far:** {blind_sentence()}")
    st.markdown(f"**And again:** {again_sentence()} {since_then()}")
    if number in COSTED:
        st.markdown(
            f"**Kernels 03 to 13.** {tiled_error(number)} {later_sentence()} Their bytes come from the same model of "
            "the caches with their own tiles, dtype, blocks on an SM and the time of a visit."
        )
    st.markdown(
        "**What it does not know:**\n\n" + "\n".join(f"- {line}" for line in (*LIMITS_OF_THE_MODEL, *LIMITS_TILED))
    )
    with st.expander("How it works"):
        st.markdown("\n".join(f"- {line}" for line in HOW_THE_MODEL_WORKS))
        st.markdown("**Time of kernels 03 to 13:**\n\n" + "\n".join(f"- {line}" for line in HOW_TILED_WORKS))
    with st.expander("What is fitted, and to what"):
        st.dataframe([constant._asdict() for constant in (*FITTED, *FITTED_TILED)], hide_index=True)
    if controls.toggle("check", "Compute all recorded runs again and list the errors (a few seconds)"):
        rows = checked()
        st.dataframe(
            [
                {
                    "kernel": row.kernel, "N": f"{row.problem.Nq:,}", "d": row.problem.d,
                    "causal": row.problem.causal or "none",
                    "tiles": f"{row.tiling[0]} x {row.tiling[1]}" if row.tiling else "its own",
                    **{LEVEL_NAMES[level]: f"{100 * error:+.1f} %" for level, error in row.errors.items()},
                }
                for row in rows
            ],
            hide_index=True,
        )  # fmt: skip


@st.cache_data(max_entries=1, show_spinner="Computing all recorded runs again")
def checked() -> list[Off]:
    """The model's error for every recorded run."""
    return against(shipped())
