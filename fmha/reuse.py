"""How far apart two uses of the same tile are, and whether a cache still holds it then.

The *stack distance* of an access is the number of different bytes that were used since the last access to the same
tile. A fully associative cache that throws out what was used longest ago (LRU) holds the tile exactly when it and those
bytes fit. Real caches are cut into sets of a few lines, and addresses are spread over the sets by a hash; then the tile
survives with a probability.

Sources: R. Mattson et al., Evaluation techniques for storage hierarchies, IBM Systems Journal 9 (1970), for stack
distances; A. Smith, A comparative study of set associative memory mapping algorithms, IEEE TSE 4 (1978), for sets.
"""

from __future__ import annotations

import math
from typing import Any

import numpy as np
from numpy.typing import NDArray

Floats = NDArray[np.float64]


def bytes_between(tile: NDArray[np.integer[Any]], nbytes: NDArray[Any]) -> Floats:
    """Different bytes that are used between each access and the one before it to the same tile, the tile left out.

    Exact, and for a million accesses in about a second: each tile's next use makes an interval, and the bytes of an
    access are those seen so far less those whose interval lies around its own. Such pairs are counted level by level
    of a binary partition of the right ends.

    Args:
        tile: [E] which tile each access uses, in time order.
        nbytes: [E] its size; the same for all accesses of one tile.

    Returns:
        [E], infinite where a tile is used for the first time.
    """
    count = len(tile)
    distance = np.full(count, np.inf)
    if count < 2:
        return distance
    order = np.argsort(tile, kind="stable")
    again = tile[order][1:] == tile[order][:-1]
    earlier, later = order[:-1][again], order[1:][again]
    next_use = np.full(count, count, np.int64)
    next_use[earlier] = later
    first = np.ones(count, np.bool_)
    first[later] = False
    size = np.asarray(nbytes, np.float64)
    seen = np.cumsum(np.where(first, size, 0.0))

    closed = next_use < count
    rank = np.empty(count, np.int64)
    rank[closed] = (np.cumsum(~first) - 1)[next_use[closed]]  # right ends are all different
    rank[~closed] = np.arange(len(later), count)  # beyond all of them
    around = _weight_of_greater_before(rank, size)
    left = np.flatnonzero(closed)
    right = next_use[left]
    distance[right] = np.maximum(seen[right] - around[left] - size[left], 0.0)
    return distance


def _weight_of_greater_before(rank: NDArray[np.int64], weight: Floats) -> Floats:
    """For each element of a permutation: the weight of the elements before it that are greater, [E].

    Two such elements agree in their leading bits up to one, which the earlier has and the later has not. Sorting by
    one bit at a time, from the highest down, brings those that agree so far together in blocks of equal length.
    """
    count = len(rank)
    bits = max(1, (count - 1).bit_length())
    rank = np.concatenate([rank, np.arange(count, 1 << bits)]).astype(np.int32)
    weight = np.concatenate([weight, np.zeros(len(rank) - count)])
    place = np.arange(len(rank), dtype=np.int32)
    total = np.zeros(len(rank))
    for bit in range(bits - 1, -1, -1):
        shape = (len(rank) >> (bit + 1), 1 << (bit + 1))
        one = ((rank >> bit) & 1).astype(np.bool_).reshape(shape)
        before = np.cumsum(np.where(one, weight.reshape(shape), 0.0), axis=1)
        total[place.reshape(shape)[~one]] += before[~one]
        rank, weight, place = (_zeros_first(x, one) for x in (rank, weight, place))
    return total[:count]


def _zeros_first(values: NDArray[Any], one: NDArray[np.bool_]) -> NDArray[Any]:
    """In each row, the values whose bit is 0 and then the others, each in the order they had; half and half."""
    rows, width = one.shape
    table = values.reshape(rows, width)
    out = np.empty_like(table)
    out[:, : width // 2] = table[~one].reshape(rows, width // 2)
    out[:, width // 2 :] = table[one].reshape(rows, width // 2)
    return out.ravel()


def survival(between: NDArray[Any] | float, capacity: float, ways: int | None = 16) -> Floats:
    """Probability that a line is still held after `between` bytes of others: the shape of `between`.

    Args:
        between: bytes, as `bytes_between` gives them.
        capacity: bytes of the cache; at 0 nothing survives.
        ways: lines of a set. The others fall into the sets by chance, on average ways x between / capacity in each, and
            the line survives when fewer than `ways` fell into its own (Poisson). None: one set, plain LRU.
    """
    distance = np.asarray(between, np.float64)
    if capacity <= 0:
        return np.zeros(distance.shape)
    if ways is None:
        return (distance < capacity).astype(np.float64)
    mean = np.minimum(ways * distance / capacity, 700.0)  # exp(-700) is still a number
    term = np.exp(-mean)
    held = term.copy()
    for lines in range(1, ways):
        term = term * mean / lines
        held += term
    return np.minimum(held, 1.0)


def mean_survival(longest: float, capacity: float, ways: int | None = 16, steps: int = 256) -> float:
    """Mean of `survival` over distances spread evenly from 0 to `longest` bytes.

    What is written at an even pace during a run is still held at its end with this probability, when `longest` bytes
    pass in all.
    """
    if not math.isfinite(longest):
        return 0.0
    middle = (np.arange(steps) + 0.5) / steps
    return float(survival(middle * longest, capacity, ways).mean())
