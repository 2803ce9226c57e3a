"""One expression of a kernel that touches shared memory, and the sum over all of them."""

from __future__ import annotations

from dataclasses import dataclass, replace

import numpy as np
from numpy.typing import NDArray

from fmha.banks import INACTIVE, WARP, Ints, turns
from fmha.units import ceil_div

FLOAT = 4


def lanes_of(count: int, threads: int) -> Ints:
    """``for (e = tid; e < count; e += threads)``: e of each lane, [turns of the loop, warps, 32]; -1: not active."""
    warps = ceil_div(threads, WARP)
    tid = np.arange(warps * WARP, dtype=np.int64)
    e = tid + threads * np.arange(ceil_div(count, threads), dtype=np.int64)[:, None]
    e = np.where((tid < threads) & (e < count), e, INACTIVE)
    return e.reshape(-1, warps, WARP)


def float_addresses(base: int, words: Ints, active: NDArray[np.bool_]) -> Ints:
    """Byte addresses of float `words` from byte `base` on, where `active` (booleans)."""
    return np.where(active, base + FLOAT * words, INACTIVE)


@dataclass(frozen=True)
class Site:
    """One expression of a kernel that loads from or stores to shared memory, over all blocks of a run.

    line, text: where it stands in the source. width: bytes a lane asks for at once, as compiled. requests: accesses by
    a warp. wavefronts: turns that they take; least: turns without conflicts. nbytes: what all lanes ask for.
    often: how often a thread does it, in words. compiled: where the machine code departs from the source, or "".
    example: byte addresses of the lanes of one warp, the access with the most wavefronts; -1: not active.
    """

    function: str
    line: int
    text: str
    store: bool
    often: str
    width: int
    requests: int
    wavefronts: int
    least: int
    nbytes: int
    example: tuple[int, ...]
    compiled: str = ""

    @property
    def conflicts(self) -> int:
        """Wavefronts more than without conflicts."""
        return self.wavefronts - self.least

    @property
    def ways(self) -> float:
        """Mean wavefronts for each that would do: 1 is free of conflicts, 32 the worst; 0 where nothing is asked."""
        return self.wavefronts / self.least if self.least else 0.0


@dataclass(frozen=True)
class SmemUse:
    """All accesses of a run to shared memory."""

    sites: tuple[Site, ...]

    @property
    def wavefronts(self) -> int:
        """Turns of the banks, over all SMs; an SM has one a clock."""
        return sum(site.wavefronts for site in self.sites)

    @property
    def conflicts(self) -> int:
        """Turns that conflicts cost."""
        return sum(site.conflicts for site in self.sites)

    @property
    def nbytes(self) -> int:
        """Bytes that lanes ask for; a word that 32 lanes read counts 32 times."""
        return sum(site.nbytes for site in self.sites)

    def of(self, function: str) -> SmemUse:
        """Of one `__global__` function."""
        return SmemUse(tuple(site for site in self.sites if site.function == function))

    def worst(self) -> Site | None:
        """The site that loses most to conflicts; None when none does."""
        site = max(self.sites, key=lambda s: s.conflicts, default=None)
        return site if site and site.conflicts else None


class Notes:
    """Collects sites. `function` is the one that is being written down."""

    def __init__(self, source: str) -> None:
        self._lines = source.splitlines()
        self._after = 0
        self.function = ""
        self.sites: list[Site] = []
        self._at: dict[tuple[str, int, str, bool], int] = {}  # by place, its number in `sites`

    @property
    def mark(self) -> int:
        """The current line, to come `back` to."""
        return self._after

    def back(self, mark: int) -> None:
        """Returns to a line, for another round over the same part of the source."""
        self._after = mark

    def at(self, snippet: str) -> None:
        """Moves to the next line of the source that holds `snippet`; later sites stand there."""
        found = (n for n in range(self._after, len(self._lines)) if snippet in self._lines[n])
        self._after = next(found)

    def add(
        self,
        text: str,
        addresses: Ints,
        times: Ints | int,
        *,
        store: bool = False,
        often: str,
        width: int = FLOAT,
        compiled: str = "",
    ) -> None:
        """A site: byte addresses [..., 32] of warps; `times` (of the same leading shape, or broadcast) each is done."""
        needed, least = turns(addresses, width)
        active = (addresses >= 0).sum(axis=-1)
        weight = np.broadcast_to(np.asarray(times, np.int64), needed.shape)
        example = addresses.reshape(-1, WARP)[int(needed.argmax())] if needed.size else np.full(WARP, INACTIVE)
        total = {
            "requests": _dot(active > 0, weight), "wavefronts": _dot(needed, weight), "least": _dot(least, weight),
            "nbytes": _dot(active, weight) * width,
        }  # fmt: skip
        site = Site(
            self.function, self._after + 1, text, store, often, width, **total,
            example=tuple(example.tolist()), compiled=compiled,
        )  # fmt: skip
        same = self._at.setdefault(_place(site), len(self.sites))
        if same == len(self.sites):
            self.sites.append(site)
        else:  # the same expression in another kind of block: a ragged last tile
            self.sites[same] = _sum(self.sites[same], site)


class Total(Notes):
    """Adds up the wavefronts of all sites, and keeps nothing else of them."""

    def __init__(self, source: str) -> None:
        super().__init__(source)
        self.wavefronts = 0

    def add(self, text: str, addresses: Ints, times: Ints | int, *, width: int = FLOAT, **_said: object) -> None:
        """As `Notes.add`."""
        needed, _ = turns(addresses, width)
        self.wavefronts += _dot(needed, np.broadcast_to(np.asarray(times, np.int64), needed.shape))


def _place(site: Site) -> tuple[str, int, str, bool]:
    return site.function, site.line, site.text, site.store


def _sum(a: Site, b: Site) -> Site:
    busier = a if a.ways >= b.ways else b
    return replace(
        a,
        requests=a.requests + b.requests,
        wavefronts=a.wavefronts + b.wavefronts,
        least=a.least + b.least,
        nbytes=a.nbytes + b.nbytes,
        example=busier.example,
    )


def _dot(values: Ints, weight: Ints) -> int:
    return int(np.vdot(values.astype(np.int64), weight))
