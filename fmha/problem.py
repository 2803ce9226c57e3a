"""What is computed (`Problem`) and how it is cut into tiles (`Tiling`)."""

from __future__ import annotations

import dataclasses
import math
import operator
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, Literal

import numpy as np
from numpy.typing import ArrayLike, NDArray

from fmha.errors import LimitError, ProblemError, TilingError
from fmha.units import ceil_div, format_bytes

Causal = Literal["bottom-right", "top-left"]

MAX_TOKENS = 1 << 24
MAX_HEADS = 1 << 16
MAX_HEAD_DIM = 1 << 12
MAX_WORKING_BYTES = 4 << 30

_CAUSAL_NAMES: dict[Any, Causal | None] = {
    None: None,
    False: None,
    "none": None,
    True: "bottom-right",
    "br": "bottom-right",
    "bottom-right": "bottom-right",
    "tl": "top-left",
    "top-left": "top-left",
}


@dataclass(frozen=True)
class Dtype:
    """A storage format of Q, K, V, O. `mantissa_bits` counts the stored ones."""

    name: str
    itemsize: int
    mantissa_bits: int
    max_finite: float


DTYPES: dict[str, Dtype] = {
    "fp32": Dtype("fp32", 4, 23, float(np.finfo(np.float32).max)),
    "fp16": Dtype("fp16", 2, 10, 65504.0),
    "bf16": Dtype("bf16", 2, 7, float.fromhex("0x1.fep127")),
}
_DTYPE_NAMES = {"float32": "fp32", "float16": "fp16", "half": "fp16", "bfloat16": "bf16"}


@dataclass(frozen=True)
class Problem:
    """One attention forward pass: O = softmax(scale * Q K^T, masked) V.

    Q is [B, H, Nq, d]; K and V are [B, Hk, Nk, d]; query head h reads K/V head h // (H / Hk).

    Args:
        B, H: batch size and query heads.
        Hk: key/value heads; H when not given. H must be a multiple of it.
        Nq, Nk: query and key length in tokens. Nk is Nq when not given.
        d: head dimension in elements.
        dtype: "fp32", "fp16" or "bf16" (also "float32", "half", ...): how Q, K, V, O are stored.
        scale: factor on Q K^T; 1/sqrt(d) when not given.
        causal: None (or False, "none"), "bottom-right" (or True, "br": query i sees keys up to
            i + Nk - Nq, FlashAttention >= 2.1) or "top-left" ("tl": keys up to i, torch SDPA's `is_causal`).
        lens_k: for each batch entry, how many keys are real (right padding beyond). None: all.
        left_pad: for each batch entry, how many keys at the front are padding. None: none.
        N: shorthand that sets Nq (and so Nk).

    Raises:
        ProblemError: in one sentence, for anything that cannot be computed.
    """

    B: int = 1
    H: int = 1
    Hk: int = None  # type: ignore[assignment]  # an int once __post_init__ is done
    Nq: int = None  # type: ignore[assignment]
    Nk: int = None  # type: ignore[assignment]
    d: int = 64
    dtype: str = "fp32"
    scale: float = None  # type: ignore[assignment]
    causal: Causal | None = None
    lens_k: tuple[int, ...] | None = None
    left_pad: tuple[int, ...] | None = None
    N: dataclasses.InitVar[int | None] = None

    def __post_init__(self, N: int | None) -> None:
        fields: dict[str, Any] = {}
        Nq = self.Nq if self.Nq is not None else N
        if Nq is None:
            raise ProblemError("no sequence length was given: pass N (or Nq and Nk), for example N=128.")
        if N is not None and self.Nq is not None and self.Nq != N:
            raise ProblemError(f"N={N} and Nq={self.Nq} were both given and differ: give one of them.")
        fields["B"] = check_whole("B", self.B, 1, MAX_HEADS, ProblemError)
        fields["H"] = H = check_whole("H", self.H, 1, MAX_HEADS, ProblemError)
        fields["Hk"] = Hk = check_whole("Hk", H if self.Hk is None else self.Hk, 1, MAX_HEADS, ProblemError)
        fields["Nq"] = check_whole("N" if self.Nq is None else "Nq", Nq, 1, MAX_TOKENS, ProblemError)
        fields["Nk"] = Nk = check_whole("Nk", Nq if self.Nk is None else self.Nk, 1, MAX_TOKENS, ProblemError)
        fields["d"] = d = check_whole("d", self.d, 1, MAX_HEAD_DIM, ProblemError)
        if H % Hk:
            raise ProblemError(
                f"H={H} query heads cannot share Hk={Hk} key/value heads evenly: H must be a multiple of Hk; "
                f"try Hk={math.gcd(H, Hk)} or Hk={H}."
            )
        fields["dtype"] = _dtype_name(self.dtype)
        fields["scale"] = _scale(self.scale, d)
        try:
            fields["causal"] = _CAUSAL_NAMES[self.causal]
        except (KeyError, TypeError):
            raise ProblemError(
                f'causal={_shown(self.causal)} is not a mask: use None, "bottom-right" or "top-left".'
            ) from None
        fields["lens_k"] = _lengths("lens_k", self.lens_k, fields["B"], Nk)
        fields["left_pad"] = _lengths("left_pad", self.left_pad, fields["B"], Nk)
        for name, value in fields.items():
            object.__setattr__(self, name, value)

    def replace(self, **changes: Any) -> Problem:
        """The same problem with other values.

        What followed from a changed value follows again, unless it is given too: Hk follows H, Nk follows Nq,
        and the default scale follows d, wherever they were equal to that default before.
        """
        values = {f.name: getattr(self, f.name) for f in dataclasses.fields(self)}
        if "N" in changes:
            changes["Nq"] = changes.pop("N")
        for leader, follower in (("H", "Hk"), ("Nq", "Nk")):
            if leader in changes and values[follower] == values[leader]:
                values[follower] = None
        if "d" in changes and self.has_default_scale:
            values["scale"] = None
        return Problem(**{**values, **changes})

    @property
    def has_default_scale(self) -> bool:
        """Whether the scale is 1/sqrt(d)."""
        return self.scale == 1 / math.sqrt(self.d)

    @property
    def itemsize(self) -> int:
        """Bytes of one element of Q, K, V, O."""
        return DTYPES[self.dtype].itemsize

    @property
    def group(self) -> int:
        """Query heads that share one key/value head."""
        return self.H // self.Hk

    @property
    def causal_offset(self) -> int | None:
        """Query row i sees keys up to i + offset; None when not causal."""
        if self.causal is None:
            return None
        return self.Nk - self.Nq if self.causal == "bottom-right" else 0

    def key_range(self, b: int) -> tuple[int, int]:
        """First and one-past-last real key of batch entry b: padding is never loaded."""
        stop = self.Nk if self.lens_k is None else self.lens_k[b]
        start = 0 if self.left_pad is None else self.left_pad[b]
        return min(start, stop), stop


@dataclass(frozen=True)
class Tiling:
    """Rows of a Q tile (`Br`) and of a K/V tile (`Bc`), in tokens.

    Raises:
        TilingError: when either is not a whole number >= 1.
    """

    Br: int
    Bc: int

    def __post_init__(self) -> None:
        object.__setattr__(self, "Br", check_whole("Br", self.Br, 1, MAX_TOKENS, TilingError))
        object.__setattr__(self, "Bc", check_whole("Bc", self.Bc, 1, MAX_TOKENS, TilingError))

    def Tr(self, problem: Problem) -> int:
        """Number of Q tiles, ceil(Nq / Br)."""
        return ceil_div(problem.Nq, self.Br)

    def Tc(self, problem: Problem) -> int:
        """Number of K/V tiles, ceil(Nk / Bc)."""
        return ceil_div(problem.Nk, self.Bc)


def cast(array: ArrayLike, dtype: str) -> NDArray[np.float32]:
    """Round to the nearest value of `dtype` (ties to even), returned as float32, which holds them all.

    Any shape. A magnitude beyond the largest finite value becomes inf, as in a conversion on the GPU.
    """
    values, name = np.asarray(array), _dtype_name(dtype)
    with np.errstate(over="ignore"):
        if name == "fp16":
            return values.astype(np.float16).astype(np.float32)
        single = np.array(values, np.float32)
    return _round_to_bf16(values, single) if name == "bf16" else single


def _round_to_bf16(values: NDArray[Any], single: NDArray[np.float32]) -> NDArray[np.float32]:
    """Keep the upper 16 bits of a float32, rounded to nearest, ties to even."""
    bits = single.view(np.uint32)
    if values.dtype != np.float32:
        # `single` is rounded already, and rounding twice can land on the wrong side of a tie. So take it towards zero
        # and set its last bit where something was cut off: then the second rounding sees that it is no tie.
        bits = np.where(np.abs(single) > np.abs(values), bits - np.uint32(1), bits)
        bits = np.where(single != values, bits | np.uint32(1), bits)
    rounded = (bits + ((bits >> np.uint32(16)) & np.uint32(1)) + np.uint32(0x7FFF)) & np.uint32(0xFFFF0000)
    return np.where(np.isnan(single), single, rounded.view(np.float32))


def check_memory(nbytes: int, what: str) -> None:
    """Refuse, before it is allocated, what needs more than `MAX_WORKING_BYTES`; `what` begins the sentence.

    Raises:
        LimitError: it does.
    """
    if nbytes > MAX_WORKING_BYTES:
        raise LimitError(
            f"{what} needs about {format_bytes(nbytes)} of memory, and {format_bytes(MAX_WORKING_BYTES)} is allowed: "
            "use a smaller N, smaller tiles or fewer heads; counting bytes alone has no such limit."
        )


def check_whole(name: str, value: Any, low: int, high: int, error: type[ValueError]) -> int:
    """`value` as an int from `low` to `high`; else `error` with a sentence that begins with `name`."""
    try:
        if isinstance(value, (bool, np.bool_)):
            raise TypeError
        number = operator.index(value)
    except TypeError:
        raise error(
            f"{name}={_shown(value)} is not a whole number: use {low} to {high:,}, for example {name}={min(32, high)}."
        ) from None
    if not low <= number <= high:
        raise error(
            f"{name}={_shown(number)} is out of range: use {low} to {high:,}, for example {name}={min(32, high)}."
        )
    return number


def _dtype_name(dtype: Any) -> str:
    name = _DTYPE_NAMES.get(dtype, dtype) if isinstance(dtype, str) else dtype
    if not isinstance(name, str) or name not in DTYPES:
        raise ProblemError(f"dtype={_shown(dtype)} is not offered: use {', '.join(DTYPES)}.")
    return name


def _scale(scale: Any, d: int) -> float:
    if scale is None:
        return 1 / math.sqrt(d)
    try:
        value = float(scale)
    except (TypeError, ValueError, OverflowError):
        value = math.nan
    if not math.isfinite(value):
        raise ProblemError(f"scale={_shown(scale)} is not a finite number: leave it out for 1/sqrt(d).")
    return value


def _lengths(name: str, value: Sequence[int] | None, B: int, Nk: int) -> tuple[int, ...] | None:
    if value is None:
        return None
    try:
        entries = tuple(value)
    except TypeError:
        entries = (value,)  # type: ignore[assignment]
    if len(entries) != B:
        raise ProblemError(f"{name} has {len(entries)} entries for B={B}: give one length per batch entry.")
    return tuple(check_whole(f"{name}[{b}]", n, 0, Nk, ProblemError) for b, n in enumerate(entries))


def _shown(value: Any, limit: int = 40) -> str:
    try:
        text = repr(value)
    except ValueError:  # an integer beyond Python's own printing limit
        text = "a number of thousands of digits"
    return text if len(text) <= limit else text[: limit - 3] + "..."
