r"""LaTeX as MathML, which browsers draw themselves: the part of LaTeX that the app's own texts use, nothing more.

A command that is not known here is an error and not a gap on the page; a test takes every formula of the app through.
"""

from __future__ import annotations

import re
from html import escape

_TOKEN = re.compile(r"\\[A-Za-z]+|\\.|\d+(?:(?:\.|\{,\})\d+)*|[A-Za-z]|\s+|.", re.DOTALL)
_LETTERS = {"alpha": "α", "beta": "β", "Theta": "Θ", "infty": "∞"}
_SIGNS = {
    "cdot": "·", "times": "×", "le": "≤", "ge": "≥", "in": "∈", "to": "→", "lceil": "⌈", "rceil": "⌉", "lfloor": "⌊",
    "rfloor": "⌋", "approx": "≈", "quad": "", "ldots": "…", "sum": "∑", "{": "{", "}": "}",
}  # fmt: skip
_WORDS = ("min", "max", "ln", "exp", "log")
_SPACES = {"\\,": "0.17em", "\\;": "0.28em", "\\ ": "0.33em", "\\quad": "1em"}


def mathml(latex: str, *, display: bool = False) -> str:
    """A formula as a `<math>` element; `display` puts it on a line of its own.

    Raises:
        ValueError: a command that is not known, or a brace that is not closed.
    """
    reader = _Reader(latex)
    inside = reader.row("")
    kind = ' display="block"' if display else ""
    return f"<math{kind}>{inside}</math>"


class _Reader:
    """Reads tokens from left to right, and gives the element that each begins."""

    def __init__(self, latex: str) -> None:
        self.latex = latex
        self.tokens = [t for t in _TOKEN.findall(latex) if not t.isspace()]
        # Blanks count inside \text alone: there they are taken from the source.
        self.texts = iter(re.findall(r"\\(?:text|mathrm)\{([^{}]*)\}", latex))
        self.at = 0

    def row(self, end: str) -> str:
        """Elements up to the token `end`, which is consumed; "" is the end of the formula."""
        out: list[str] = []
        while True:
            token = self.peek()
            if token is None:
                if end:
                    raise ValueError(f"{end} is missing in the formula {self.latex!r}")
                break
            if token == end:
                self.at += 1
                break
            out.append(self.scripted())
        return out[0] if len(out) == 1 else f"<mrow>{''.join(out)}</mrow>"

    def peek(self) -> str | None:
        return self.tokens[self.at] if self.at < len(self.tokens) else None

    def take(self) -> str:
        token = self.peek()
        if token is None:
            raise ValueError(f"the formula {self.latex!r} ends too early")
        self.at += 1
        return token

    def scripted(self) -> str:
        """An element with what stands above and below it."""
        base, below, above = self.one(), "", ""
        while self.peek() in ("_", "^"):
            if self.take() == "_":
                below = self.one()
            else:
                above = self.one()
        if below and above:
            return f"<msubsup>{base}{below}{above}</msubsup>"
        if below or above:
            kind = "sub" if below else "sup"
            return f"<m{kind}>{base}{below or above}</m{kind}>"
        return base

    def one(self) -> str:
        token = self.take()
        if token == "{":
            return self.row("}")
        if token.startswith("\\"):
            return self.command(token)
        if token[0].isdigit():
            return f"<mn>{token.replace('{,}', ',')}</mn>"
        return f"<mi>{token}</mi>" if token.isalpha() else f"<mo>{escape('−' if token == '-' else token)}</mo>"

    def command(self, token: str) -> str:
        name = token[1:]
        if token in _SPACES:
            return f'<mspace width="{_SPACES[token]}"/>'
        if name == "frac":
            return f"<mfrac>{self.one()}{self.one()}</mfrac>"
        if name == "sqrt":
            return f"<msqrt>{self.one()}</msqrt>"
        if name in ("text", "mathrm"):
            self.one()
            return f"<mtext>{escape(next(self.texts))}</mtext>"
        if name in ("left", "right"):
            return self.one().replace("<mo>", '<mo stretchy="true">', 1)
        if name in _LETTERS:
            return f"<mi>{_LETTERS[name]}</mi>"
        if name in _WORDS:
            return f"<mi>{name}</mi>"
        if name in _SIGNS:
            return f"<mo>{_SIGNS[name]}</mo>"
        raise ValueError(
            f"the command {token} of the formula {self.latex!r} is not known: add it to fmha/site/maths.py"
        )


__all__ = ["mathml"]
