"""The order of a program's parts as its source has it, from a compiler's assembly text, whatever the layout is.

A warp whose lanes went different ways is brought together again by letting the lane go first that is furthest behind.
For that "behind" needs a meaning: a branch comes before what follows it, and all of a loop before what comes after it.
This is the weak topological order of Bourdoncle ("Efficient chaotic iteration strategies with widenings", 1993):
strongly connected parts of the flow graph stay together, first their head, then the rest in the same manner.
"""

from __future__ import annotations

import itertools
import re
from collections.abc import Iterator, Sequence

_LABEL = re.compile(r"^([\w.$]+):")
_INSTRUCTION = re.compile(r"^\s+([a-z][\w.]*)(.*)$")
_JUMPS = {
    "x86_64": re.compile(r"j[a-z]+"),
    "arm64": re.compile(r"b|b\.[a-z]+|bc\.[a-z]+|cbn?z|tbn?z"),
}
_ENDS = {"jmp", "b", "br", "ret", "retq", "ud2", "brk", "hlt", "udf"}  # what is never followed by the next row


Loops = tuple[int, ...]  # numbers of loops, one inside the other, from the outermost


def program_order(rows: Sequence[str], machine: str) -> list[int]:
    """For each row of an assembly text, a number that grows in the order of the program.

    machine: "x86_64" or "arm64". Rows of one straight piece of code keep their order; functions follow one another.
    """
    return program_structure(rows, machine)[0]


def program_structure(rows: Sequence[str], machine: str) -> tuple[list[int], list[Loops]]:
    """For each row its place, as `program_order`, and the loops that it is in, numbered from 1."""
    firsts, edges = _blocks(rows, machine)
    place = [0] * len(rows)
    loops: list[Loops] = [()] * len(rows)
    at = 0
    for block, inside in _weak_order(range(len(firsts)), edges, (), itertools.count(1)):
        end = firsts[block + 1] if block + 1 < len(firsts) else len(rows)
        for row in range(firsts[block], end):
            place[row], loops[row] = at, inside
            at += 1
    return place, loops


def _blocks(rows: Sequence[str], machine: str) -> tuple[list[int], list[list[int]]]:
    """First rows of the straight pieces of code, and which may follow which."""
    firsts, labels = [0], {}
    jumps: dict[int, list[str]] = {}
    falls: dict[int, bool] = {}  # whether what follows a block in the text can follow it in time
    for number, row in enumerate(rows):
        if found := _LABEL.match(row):
            if number != firsts[-1]:
                firsts.append(number)
            labels[found[1]] = len(firsts) - 1
        elif (found := _INSTRUCTION.match(row)) and falls.get(len(firsts) - 1, True):
            is_jump, is_end = bool(_JUMPS[machine].fullmatch(found[1])), found[1] in _ENDS
            if is_jump or is_end:
                falls[len(firsts) - 1] = not is_end
                jumps[len(firsts) - 1] = re.findall(r"[\w.$]+", found[2]) if is_jump else []
            if is_jump and not is_end:
                firsts.append(number + 1)
    functions = {block for name, block in labels.items() if not name.startswith((".L", "L"))}
    edges: list[list[int]] = []
    for block in range(len(firsts)):
        is_followed = block + 1 < len(firsts) and falls.get(block, True) and block + 1 not in functions
        targets = [labels[word] for word in jumps.get(block, []) if word in labels]
        inside = [target for target in targets[:1] if target not in functions]  # a jump to a function is a call
        edges.append([block + 1] * is_followed + inside)
    reached, todo = set(functions), sorted(functions)
    while todo:
        for after in edges[todo.pop()]:
            if after not in reached:
                reached.add(after)
                todo.append(after)
    return firsts, [after if block in reached else [] for block, after in enumerate(edges)]


def _weak_order(
    blocks: Sequence[int], edges: Sequence[Sequence[int]], inside: Loops, numbers: Iterator[int]
) -> list[tuple[int, Loops]]:
    """The blocks, loops kept together and each begun at its head, and the loops that each is in."""
    order: list[tuple[int, Loops]] = []
    for part in _components(blocks, edges):
        if len(part) == 1:
            itself = part[0] in edges[part[0]]
            order.append((part[0], (*inside, next(numbers)) if itself else inside))
            continue
        members = set(part)
        # The head is where the loop is entered. (Of a loop that nothing enters: its first block.)
        entered = [b for a, after in enumerate(edges) if a not in members for b in after if b in members]
        head = min(entered or part)
        here = (*inside, next(numbers))
        order += [(head, here), *_weak_order([b for b in part if b != head], edges, here, numbers)]
    return order


def _components(blocks: Sequence[int], edges: Sequence[Sequence[int]]) -> list[list[int]]:
    """Strongly connected parts, each after all that lead to it (Tarjan, without recursion)."""
    inside = set(blocks)
    index: dict[int, int] = {}
    low: dict[int, int] = {}
    stack: list[int] = []
    on_stack: set[int] = set()
    found: list[list[int]] = []
    # What is begun last comes first in the result: so begin with the last.
    for root in sorted(blocks, reverse=True):
        if root in index:
            continue
        todo = [(root, iter(sorted((b for b in edges[root] if b in inside), reverse=True)))]
        index[root] = low[root] = len(index)
        stack.append(root)
        on_stack.add(root)
        while todo:
            block, following = todo[-1]
            for after in following:
                if after not in index:
                    index[after] = low[after] = len(index)
                    stack.append(after)
                    on_stack.add(after)
                    todo.append((after, iter(sorted((b for b in edges[after] if b in inside), reverse=True))))
                    break
                if after in on_stack:
                    low[block] = min(low[block], index[after])
            else:
                todo.pop()
                if todo:
                    low[todo[-1][0]] = min(low[todo[-1][0]], low[block])
                if low[block] == index[block]:
                    part: list[int] = []
                    while not part or part[-1] != block:
                        part.append(stack.pop())
                        on_stack.discard(part[-1])
                    found.append(part)
    return found[::-1]


__all__ = ["Loops", "program_order", "program_structure"]
