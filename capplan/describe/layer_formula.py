"""The order of layers as a formula: ``3*dense + 10*(5*local + global)``.

Grammar::

    sum  = term { "+" term }
    term = [ integer "*" ] ( name | "(" sum ")" )
"""

from __future__ import annotations

import re
from collections.abc import Collection, Sequence

_TOKEN = re.compile(r"\s*(?:(\d{1,9})|([A-Za-z_][A-Za-z0-9_]*)|([*+()]))")
_MAX_NESTING = 20


def expand_layers(formula: str, names: Collection[str], *, most: int) -> list[str]:
    """The block name of every layer, in order.

    Raises:
        ValueError: a name that is no block, bad grammar, or more than `most` layers.
    """
    parser = _Parser(_tokens(formula), names, most)
    order = parser.sum(0)
    if parser.rest():
        raise ValueError(f"layers: unexpected {parser.rest()[0]!r} in {formula!r}")
    if not order:
        raise ValueError("layers: there must be at least one layer")
    return order


def layer_formula(order: Sequence[str]) -> str:
    """The shortest of the simple formulas for an order: runs, and one pattern that repeats.

    The inverse of `expand_layers` for display and for writing descriptions.
    """
    best = _runs(order)
    for period in range(2, min(len(order) // 2, 24) + 1):
        for lead in range(min(period, 4) + 1):
            body = order[lead : lead + period]
            times = 0
            while order[lead + times * period : lead + (times + 1) * period] == body:
                times += 1
            if times < 2:
                continue
            tail = order[lead + times * period :]
            parts = [_runs(order[:lead]), f"{times}*({_runs(body)})", _runs(tail)]
            text = " + ".join(part for part in parts if part)
            if len(text) < len(best):
                best = text
    return best


def _runs(order: Sequence[str]) -> str:
    terms: list[str] = []
    index = 0
    while index < len(order):
        end = index
        while end < len(order) and order[end] == order[index]:
            end += 1
        repeat = end - index
        terms.append(order[index] if repeat == 1 else f"{repeat}*{order[index]}")
        index = end
    return " + ".join(terms)


def _tokens(formula: str) -> list[str]:
    tokens: list[str] = []
    position = 0
    text = formula.rstrip()
    while position < len(text):
        match = _TOKEN.match(text, position)
        if match is None:
            raise ValueError(f"layers: cannot read {text[position : position + 12]!r}")
        tokens.append(match.group(match.lastindex or 0))
        position = match.end()
    return tokens


class _Parser:
    """Recursive descent over the tokens, bounded in depth and in the length of its result."""

    def __init__(self, tokens: list[str], names: Collection[str], most: int) -> None:
        self.tokens = tokens
        self.names = names
        self.most = most
        self.at = 0

    def rest(self) -> list[str]:
        return self.tokens[self.at :]

    def take(self) -> str:
        if self.at >= len(self.tokens):
            raise ValueError("layers: the formula ends too early")
        self.at += 1
        return self.tokens[self.at - 1]

    def sum(self, depth: int) -> list[str]:
        order = self.term(depth)
        while self.rest()[:1] == ["+"]:
            self.take()
            order += self.term(depth)
            self.check_length(len(order))
        return order

    def term(self, depth: int) -> list[str]:
        if depth > _MAX_NESTING:
            raise ValueError("layers: the brackets are nested too deep")
        token = self.take()
        repeat = 1
        if token.isdigit():
            repeat = int(token)
            if repeat < 1:
                raise ValueError("layers: a block must be repeated at least once")
            if self.take() != "*":
                raise ValueError(f"layers: expected '*' after {token}")
            token = self.take()
        if token == "(":
            body = self.sum(depth + 1)
            if self.take() != ")":
                raise ValueError("layers: a bracket is not closed")
        elif token in self.names:
            body = [token]
        else:
            raise ValueError(f"layers: {token!r} is not one of the blocks {', '.join(self.names)}")
        self.check_length(len(body) * repeat)
        return body * repeat

    def check_length(self, length: int) -> None:
        if length > self.most:
            raise ValueError(f"layers: more than {self.most} layers")
