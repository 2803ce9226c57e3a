"""What others have: attention by torch operations and by the backends of torch's scaled_dot_product_attention."""

from __future__ import annotations

import contextlib
import warnings
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from types import MappingProxyType
from typing import Any

import numpy as np
from numpy.typing import NDArray

from fmha.mask import keep, row_bounds
from fmha.problem import Problem
from fmha.units import format_bytes

DTYPES = ("fp32", "fp16", "bf16")
TITLES = {
    "torch-eager": "torch, three operations",
    "sdpa-math": "SDPA, math",
    "sdpa-efficient": "SDPA, memory-efficient",
    "sdpa-flash": "SDPA, FlashAttention-2",
    "sdpa-cudnn": "SDPA, cuDNN",
    "fa3": "FlashAttention-3",
}
_BACKENDS = {
    "sdpa-math": "MATH",
    "sdpa-efficient": "EFFICIENT_ATTENTION",
    "sdpa-flash": "FLASH_ATTENTION",
    "sdpa-cudnn": "CUDNN_ATTENTION",
}
_MATRICES = {"torch-eager": 3, "sdpa-math": 4}  # N x N matrices held at once, generously


@dataclass
class Peer:
    """One implementation in one dtype: `run()` starts it on the GPU and returns its O; or `absent` says why not."""

    name: str
    dtype: str
    run: Callable[[], Any] | None = None
    absent: str | None = None

    @property
    def title(self) -> str:
        """Its name in words."""
        return TITLES[self.name]


def peers(
    torch: Any,
    problem: Problem,
    Q: NDArray[Any],
    K: NDArray[Any],
    V: NDArray[Any],
    free_bytes: int,
    *,
    dtypes: Sequence[str] = DTYPES,
    refused: Mapping[str, str] = MappingProxyType({}),
) -> Iterator[Peer]:
    """All peers in these dtypes, tried once each. Q, K, V: float32 arrays of the problem's shapes.

    K and V are copied for every query head beforehand where heads share them, outside the timing. refused: names of
    peers that are not to run, each with the reason.
    """
    reason = _nobody(problem)
    for dtype in dtypes:
        if reason is None:
            kind = {"fp32": torch.float32, "fp16": torch.float16, "bf16": torch.bfloat16}[dtype]
            q, k, v = (torch.from_numpy(np.ascontiguousarray(a)).to("cuda", kind) for a in (Q, K, V))
            if problem.group > 1:
                k, v = (x.repeat_interleave(problem.group, dim=1) for x in (k, v))
            mask = _mask(torch, problem)
        for name in TITLES:
            if reason is not None or name in refused:
                yield Peer(name, dtype, absent=reason or refused[name])
            elif (shortage := _shortage(name, problem, dtype, free_bytes)) is not None:
                yield Peer(name, dtype, absent=shortage)
            else:
                maker = {"torch-eager": _eager, "fa3": _fa3}.get(name, _sdpa)
                try:
                    run = maker(torch, name, problem, q, k, v, mask)
                except _Absent as why:
                    yield Peer(name, dtype, absent=str(why))
                else:
                    yield _tried(torch, name, dtype, run)


def _nobody(problem: Problem) -> str | None:
    """Why no peer takes part; None when they can."""
    for b in range(problem.B):
        low, high = row_bounds(problem, b)
        if (high <= low).any():
            return "not compared: some rows see no key, and libraries do not agree on their answer"
    return None


def _shortage(name: str, problem: Problem, dtype: str, free_bytes: int) -> str | None:
    p = problem.replace(dtype=dtype)
    need = _MATRICES.get(name, 0) * p.B * p.H * p.Nq * p.Nk * p.itemsize
    if need <= free_bytes:
        return None
    return f"not run: its N x N matrices need about {format_bytes(need)}, and {format_bytes(free_bytes)} are free"


def _mask(torch: Any, problem: Problem) -> Any:
    """None (no mask), True (torch's own causal mask fits), or a boolean mask [B or 1, 1, Nq, Nk], True = may look."""
    p = problem
    if p.lens_k is None and p.left_pad is None:
        if p.causal is None:
            return None
        if p.Nq == p.Nk or p.causal == "top-left":
            return True  # SDPA aligns is_causal at the top left
        p = p.replace(B=1)
    return torch.from_numpy(keep(p)[:, None]).to("cuda")


def _eager(torch: Any, _name: str, problem: Problem, q: Any, k: Any, v: Any, mask: Any) -> Callable[[], Any]:
    hidden = None
    if mask is not None:
        seen = keep(problem.replace(B=1))[:, None] if mask is True else None
        hidden = ~(torch.from_numpy(seen).to("cuda") if seen is not None else mask)

    def run() -> Any:
        S = torch.matmul(q, k.transpose(-1, -2)) * problem.scale
        if hidden is not None:
            S.masked_fill_(hidden, float("-inf"))
        return torch.matmul(torch.softmax(S, dim=-1), v)

    return run


def _sdpa(torch: Any, name: str, problem: Problem, q: Any, k: Any, v: Any, mask: Any) -> Callable[[], Any]:
    from torch.nn.attention import SDPBackend, sdpa_kernel

    backend = getattr(SDPBackend, _BACKENDS[name])
    given: dict[str, Any] = {"scale": problem.scale}
    given |= {"is_causal": True} if mask is True else {"attn_mask": mask} if mask is not None else {}

    def run() -> Any:
        with sdpa_kernel([backend]):
            return torch.nn.functional.scaled_dot_product_attention(q, k, v, **given)

    return run


class _Absent(Exception):
    """Why a peer cannot take part, in a sentence."""


def _fa3(torch: Any, _name: str, problem: Problem, q: Any, k: Any, v: Any, mask: Any) -> Callable[[], Any]:
    """FlashAttention-3 of the package fa3-fwd. It wants [B, N, H, d]: made so beforehand, outside the timing."""
    if q.dtype == torch.float32:
        raise _Absent("not offered: FlashAttention-3 computes in 16 bits")
    if mask is not None and (mask is not True or problem.Nq != problem.Nk):
        raise _Absent("not offered: FlashAttention-3 knows no such mask")
    try:
        from fa3_fwd_interface import flash_attn_func
    except Exception as error:  # not installed, or built for another torch or GPU
        raise _Absent(f"not installed here (pip install fa3-fwd): {str(error).splitlines()[0][:100]}") from None
    queries, keys, values = (x.transpose(1, 2).contiguous() for x in (q, k, v))

    def run() -> Any:
        out = flash_attn_func(queries, keys, values, softmax_scale=problem.scale, causal=mask is True)
        return (out[0] if isinstance(out, tuple) else out).transpose(1, 2)

    return run


def _tried(torch: Any, name: str, dtype: str, run: Callable[[], Any]) -> Peer:
    """The peer if it runs at all, else its reason."""
    with warnings.catch_warnings(record=True) as told:
        warnings.simplefilter("always")
        try:
            with torch.no_grad():
                run()
            torch.cuda.synchronize()
        except torch.cuda.OutOfMemoryError:
            torch.cuda.empty_cache()
            return Peer(name, dtype, absent="not run: the GPU's memory is too small for it")
        except RuntimeError as error:
            if "CUDA error" in str(error):
                raise
            return Peer(name, dtype, absent=f"not offered by torch here: {_reason(told, error)}")
    return Peer(name, dtype, run=run)


def _reason(told: list[warnings.WarningMessage], error: RuntimeError) -> str:
    """The most telling line: torch warns of why a backend cannot be used before it gives up, and of the backends that
    were switched off so that this one is used."""
    lines = [str(w.message).split(" (Triggered")[0].strip() for w in told]
    telling = [line for line in lines if "because:" not in line and "runtime disabled" not in line]
    text = telling[0] if telling else str(error).splitlines()[0]
    return text.rstrip(".: ")[:160]


@contextlib.contextmanager
def quiet(torch: Any) -> Iterator[None]:
    """No gradients, no warnings: for timing."""
    with torch.no_grad(), warnings.catch_warnings():
        warnings.simplefilter("ignore")
        yield
