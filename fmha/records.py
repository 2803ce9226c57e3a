"""Dataclasses as JSON and back, read strictly: a file from anywhere becomes the annotated types, or one sentence."""

from __future__ import annotations

import dataclasses
import json
import math
import types
import typing
from functools import lru_cache
from typing import Any


class Wrong(Exception):
    """Where data departs from the annotated types, and what should be there."""


def parsed(data: bytes | str) -> Any:
    """The contents of a JSON file.

    Raises:
        ValueError, RecursionError: it is none; also where it holds NaN or Infinity, which JSON has not.
    """
    return json.loads(data, parse_constant=_no_constant)


def _no_constant(text: str) -> float:
    raise ValueError(text)


def plain(value: Any) -> Any:
    """Dataclasses, tuples and infinities as JSON has them."""
    if dataclasses.is_dataclass(value) and not isinstance(value, type):
        return {f.name: plain(getattr(value, f.name)) for f in dataclasses.fields(value)}
    if isinstance(value, dict):
        return {str(key): plain(item) for key, item in value.items()}
    if isinstance(value, (list, tuple)):
        return [plain(item) for item in value]
    if isinstance(value, float) and not math.isfinite(value):
        return "inf" if value > 0 else "-inf" if value < 0 else "nan"
    return value


def build(kind: Any, raw: Any, where: str) -> Any:
    """`raw`, as JSON gave it, as a value of the annotated type `kind`. where: its name in a sentence.

    Raises:
        Wrong: it is of another type.
    """
    origin, arguments = typing.get_origin(kind), typing.get_args(kind)
    if origin in (types.UnionType, typing.Union):
        if raw is None and type(None) in arguments:
            return None
        return build(next(a for a in arguments if a is not type(None)), raw, where)
    if kind is Any:
        return raw
    if origin is typing.Literal:
        return raw if raw in arguments else wrong(where, f"one of {arguments}")
    if origin is tuple:
        if not isinstance(raw, list):
            wrong(where, "a list")
        if len(arguments) == 2 and arguments[1] is Ellipsis:
            return tuple(build(arguments[0], item, f"{where}[{i}]") for i, item in enumerate(raw))
        if len(raw) != len(arguments):
            wrong(where, f"a list of {len(arguments)}")
        return tuple(build(a, item, f"{where}[{i}]") for i, (a, item) in enumerate(zip(arguments, raw, strict=True)))
    if origin is dict:
        if not isinstance(raw, dict):
            wrong(where, "an object")
        return {str(key): build(arguments[1], item, f"{where}.{key[:20]}") for key, item in raw.items()}
    if dataclasses.is_dataclass(kind):
        return _build_dataclass(kind, raw, where)
    return _build_scalar(kind, raw, where)


@lru_cache(maxsize=32)
def _fields(kind: Any) -> tuple[tuple[str, Any, dataclasses.Field[Any]], ...]:
    """Name, type and field of each field: worked out once a class, as a file holds thousands of values."""
    hints = typing.get_type_hints(kind)
    return tuple((spec.name, hints[spec.name], spec) for spec in dataclasses.fields(kind))


def _build_dataclass(kind: Any, raw: Any, where: str) -> Any:
    if not isinstance(raw, dict):
        wrong(where, "an object")
    values = {}
    for name, hint, spec in _fields(kind):
        if name in raw:
            values[name] = build(hint, raw[name], f"{where}.{name}")
        elif spec.default is dataclasses.MISSING and spec.default_factory is dataclasses.MISSING:
            wrong(f"{where}.{name}", "present")
    return kind(**values)


def _build_scalar(kind: Any, raw: Any, where: str) -> Any:
    if kind is float and isinstance(raw, str) and raw in ("inf", "-inf", "nan"):
        return float(raw)
    if kind is float and isinstance(raw, (int, float)) and not isinstance(raw, bool):
        return float(raw)
    if type(raw) is not kind:
        wrong(where, {int: "a whole number", float: "a number", str: "text", bool: "true or false"}[kind])
    if kind is int and not -(2**63) <= raw < 2**63:  # tables of the page hold no larger ones
        wrong(where, "a number of at most 64 bits")
    return raw


def wrong(where: str, wanted: str) -> typing.NoReturn:
    """Say what should be where."""
    raise Wrong(f"{where} should be {wanted}")


__all__ = ["Wrong", "build", "parsed", "plain", "wrong"]
