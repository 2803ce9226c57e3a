"""Shared memory's 32 banks: how many turns an access of one warp takes, and who hits which bank in which turn.

Shared memory is cut into 32 banks of 4 bytes: word w (byte address / 4) lies in bank w mod 32. In one turn, a
*wavefront*, every bank delivers one word, to as many lanes as want that word. Lanes that want different words of one
bank wait for one another: a bank conflict. So an access takes as many wavefronts as the busiest bank has different
words to deliver. Wider accesses are done in groups of neighbouring lanes that together want at most 128 bytes:
half-warps for 8 bytes a lane, quarter-warps for 16; a group with no active lane takes no turn. Two neighbouring groups
(the halves of a warp, or of a half-warp) go together if lanes want the same in pairs: each active lane as the one
beside it, or each as the one two lanes away. So 16 bytes for a whole warp from one address take two turns, not four.

Source: CUDA C++ Programming Guide, "Shared Memory" of compute capabilities 5.x and later (banks, broadcast). The rule
for 16 bytes is how the wavefronts behave that Nsight Compute counted line by line on an H200 (kernels 05 and 06,
`fmha/recorded/lines`); that for 8 bytes is the same by analogy.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from fmha.errors import InputError

BANKS = 32
BANK_BYTES = 4
WARP = 32
INACTIVE = -1
WIDTHS = (4, 8, 16)  # bytes a lane may ask for at once

Ints = NDArray[np.int64]


def wavefronts(addresses: NDArray[np.integer[Any]], nbytes: int = 4) -> Ints:
    """Wavefronts of many accesses at once.

    Args:
        addresses: byte addresses [..., 32], one a lane, multiples of `nbytes`; negative: the lane is not active.
        nbytes: 4, 8 or 16 bytes a lane.

    Returns:
        Wavefronts of each access, [...]; 0 where no lane is active.

    Raises:
        InputError: the last axis has not 32 lanes, another width, or an address is not aligned to it.
    """
    return turns(addresses, nbytes)[0]


def least_wavefronts(addresses: NDArray[np.integer[Any]], nbytes: int = 4) -> Ints:
    """What the same accesses would take without conflicts: groups with an active lane, [...]."""
    return turns(addresses, nbytes)[1]


def turns(addresses: NDArray[np.integer[Any]], nbytes: int = 4) -> tuple[Ints, Ints]:
    """`wavefronts` and `least_wavefronts` of the same accesses.

    Raises:
        InputError: as `wavefronts`.
    """
    words = _words(addresses, nbytes)
    groups = words.shape[-2]
    if groups == 1:
        return _most(words).sum(axis=-1), (words >= 0).any(axis=-1).sum(axis=-1, dtype=np.int64)
    together = _together(np.asarray(addresses, np.int64), nbytes)
    apart, active = _most(words), (words >= 0).any(axis=-1)
    pairs = (*words.shape[:-2], groups // 2, 2)
    cost, least = apart.reshape(pairs).sum(axis=-1), active.reshape(pairs).sum(axis=-1, dtype=np.int64)
    if together.any():
        cost[together] = _most(words.reshape(*pairs[:-1], 2 * WARP)[together])
        least[together] = np.minimum(least[together], 1)
    return cost.sum(axis=-1), least.sum(axis=-1)


def _most(words: Ints) -> Ints:
    """The most different words in one bank: of words [..., n], each row by itself, [...]; -1 is no word."""
    rows = words.reshape(-1, words.shape[-1])
    order = np.sort(rows, axis=1)
    first = order >= 0  # of lanes that want the same word
    first[:, 1:] &= order[:, 1:] != order[:, :-1]
    bank = order % BANKS + np.arange(0, len(rows) * BANKS, BANKS)[:, None]  # of its row
    busy = np.bincount(bank[first], minlength=len(rows) * BANKS)
    most = busy.reshape(len(rows), BANKS).max(axis=1, initial=0).astype(np.int64)
    return np.asarray(most.reshape(words.shape[:-1]))


def _together(lanes: Ints, nbytes: int) -> NDArray[np.bool_]:
    """Whether two neighbouring groups go together, [..., pairs of groups]: see the head of this file."""
    number = np.arange(WARP)
    alike = []
    for distance in (1, 2):
        other = lanes[..., number ^ distance]
        pairs = (lanes == other) | (lanes < 0) | (other < 0)
        alike.append(pairs.reshape(*lanes.shape[:-1], nbytes // 8, -1).all(axis=-1))
    return np.asarray(alike[0] | alike[1])


def ways(addresses: Sequence[int], nbytes: int = 4) -> int:
    """Wavefronts of one access by one warp: 1 when it is free of conflicts, 32 at worst (for 4 bytes a lane).

    Example: ``ways([64 * 4 * lane for lane in range(32)]) == 32``: a column of a row-major tile of 64 floats a row.

    Raises:
        InputError: as `wavefronts`; fewer than 32 addresses are allowed, the other lanes are not active.
    """
    lanes = np.full(WARP, INACTIVE, np.int64)
    if len(addresses) > WARP:
        raise InputError(f"a warp has {WARP} lanes and {len(addresses)} addresses were given: give {WARP} or fewer.")
    lanes[: len(addresses)] = addresses
    return int(wavefronts(lanes, nbytes))


@dataclass(frozen=True)
class BankPicture:
    """One access by one warp, drawn on the banks. Arrays are [32, words a lane asks for]; -1: the lane is not active.

    bank: the bank of each word. word: its index in shared memory (byte address / 4). turn: the wavefront in which it
    is delivered, from 0. wavefronts: how many there are; least: without conflicts.
    """

    bank: Ints
    word: Ints
    turn: Ints
    wavefronts: int
    least: int

    def lanes_in(self, turn: int) -> dict[int, list[int]]:
        """Who is served in a wavefront: bank -> lanes that get that bank's word."""
        served: dict[int, list[int]] = {}
        for lane, part in zip(*np.nonzero(self.turn == turn), strict=True):
            served.setdefault(int(self.bank[lane, part]), []).append(int(lane))
        return served


def picture(addresses: Sequence[int], nbytes: int = 4) -> BankPicture:
    """How the banks serve one access: `addresses` are up to 32 byte addresses, negative for lanes that are not active.

    The words of a bank are delivered in the order in which lanes ask for them (the hardware's own order is not
    published; their number is what counts).

    Raises:
        InputError: as `ways`.
    """
    total = ways(addresses, nbytes)
    lanes = np.full(WARP, INACTIVE, np.int64)
    lanes[: len(addresses)] = addresses
    parts = nbytes // BANK_BYTES
    groups: list[Ints] = [*_words(lanes, nbytes)]
    if parts > 1:
        both = [np.concatenate(groups[g : g + 2]) for g in range(0, parts, 2)]
        joined = zip(_together(lanes, nbytes).tolist(), both, range(0, parts, 2), strict=True)
        groups = [words for is_one, pair, g in joined for words in ([pair] if is_one else groups[g : g + 2])]
    turns_of: list[int] = []
    before = 0
    for words in groups:
        at: dict[int, int] = {}  # word -> turn
        queue: dict[int, int] = {}  # bank -> words so far
        for word in words.tolist():
            if word < 0:
                turns_of.append(INACTIVE)
                continue
            if word not in at:
                at[word] = queue.get(word % BANKS, 0)
                queue[word % BANKS] = at[word] + 1
            turns_of.append(before + at[word])
        before += max(queue.values(), default=0)
    word = np.concatenate(groups).reshape(WARP, parts)
    turn = np.array(turns_of, np.int64)
    bank = np.where(word >= 0, word % BANKS, INACTIVE)
    return BankPicture(bank, word, turn.reshape(WARP, parts), total, int(least_wavefronts(lanes, nbytes)))


def _words(addresses: NDArray[np.integer[Any]], nbytes: int) -> Ints:
    """Word indices by group: [..., groups, words of a group], -1 for lanes that are not active."""
    if nbytes not in WIDTHS:
        raise InputError(f"a lane cannot ask for {nbytes!r} bytes at once: use 4, 8 or 16.")
    lanes = np.asarray(addresses, np.int64)
    if lanes.ndim == 0 or lanes.shape[-1] != WARP:
        raise InputError(f"a warp has {WARP} lanes: give addresses of shape (..., {WARP}), not {lanes.shape}.")
    if (np.maximum(lanes, 0) & (nbytes - 1)).any():
        raise InputError(f"an access of {nbytes} bytes a lane needs addresses that are multiples of {nbytes}.")
    words = lanes >> 2  # a negative address stays negative
    if nbytes == BANK_BYTES:
        return words[..., None, :]
    parts = nbytes // BANK_BYTES
    words = np.where(lanes[..., None] >= 0, words[..., None] + np.arange(parts), INACTIVE)
    return words.reshape(*lanes.shape[:-1], parts, WARP)
