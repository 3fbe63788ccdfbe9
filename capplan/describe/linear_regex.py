r"""Regular expressions from files that capplan did not write, matched in time linear in the name.

Quantisation configurations list modules by regular expressions. Python's own engine backtracks, so that a hostile
pattern such as ``(a+)+$`` can run for years; here an expression becomes a deterministic automaton, state by state as
names are read, by derivatives: the derivative of an expression by a character matches what may follow it.

Understood: literals, ``.``, ``[...]``, ``\d \w \s`` and their complements, ``|``, groups (named and not), repeats (lazy
ones too), ``^`` at the start, ``$`` at the end, and lookahead ``(?=...)`` and ``(?!...)`` outside groups. Refused as
unsupported: back-references, lookbehind, ``\b``, and expressions that are too large.

Source: Brzozowski 1964, "Derivatives of regular expressions", J. ACM 11(4).
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import NoReturn, TypeAlias

from capplan.errors import UnsupportedError

MAX_PATTERN = 500
MAX_NESTING = 40
MAX_REPEATED = 200
MAX_STATE_SIZE = 2000
MAX_STATES = 2000


@dataclass(frozen=True, slots=True)
class _Characters:
    """One character out of a set, or out of everything but the set."""

    among: frozenset[str]
    negated: bool = False

    def has(self, character: str) -> bool:
        return (character in self.among) != self.negated


@dataclass(frozen=True, slots=True)
class _Sequence:
    first: _Node
    rest: _Node


@dataclass(frozen=True, slots=True)
class _Either:
    options: frozenset[_Node]


@dataclass(frozen=True, slots=True)
class _Repeat:
    body: _Node


@dataclass(frozen=True, slots=True)
class _Both:
    """Intersection: a lookahead beside what follows it."""

    left: _Node
    right: _Node


@dataclass(frozen=True, slots=True)
class _Not:
    body: _Node


@dataclass(frozen=True, slots=True)
class _End:
    """``$``: the empty string, but only at the end."""


_Node: TypeAlias = _Characters | _Sequence | _Either | _Repeat | _Both | _Not | _End

NOTHING: _Node = _Either(frozenset())
EMPTY: _Node = _Repeat(NOTHING)
ANY: _Node = _Characters(frozenset(), negated=True)
ANYTHING: _Node = _Repeat(ANY)


def _sequence(first: _Node, rest: _Node) -> _Node:
    if NOTHING in (first, rest):
        return NOTHING
    if first == EMPTY:
        return rest
    if isinstance(first, _Sequence):
        return _Sequence(first.first, _sequence(first.rest, rest))
    return first if rest == EMPTY else _Sequence(first, rest)


def _either(*options: _Node) -> _Node:
    flat: set[_Node] = set()
    for option in options:
        flat |= option.options if isinstance(option, _Either) else {option}
    if ANYTHING in flat:
        return ANYTHING
    return flat.pop() if len(flat) == 1 else _Either(frozenset(flat))


def _repeat(body: _Node) -> _Node:
    return body if isinstance(body, _Repeat) else _Repeat(body)


def _both(left: _Node, right: _Node) -> _Node:
    if NOTHING in (left, right):
        return NOTHING
    if left == ANYTHING:
        return right
    return left if right in (ANYTHING, left) else _Both(left, right)


def _not(body: _Node) -> _Node:
    if body == NOTHING:
        return ANYTHING
    if body == ANYTHING:
        return NOTHING
    return body.body if isinstance(body, _Not) else _Not(body)


def _matches_empty(node: _Node, at_end: bool) -> bool:
    """Whether the expression matches the empty string, at the end of the name or before it."""
    match node:
        case _Characters():
            return False
        case _Sequence(first, rest):
            return _matches_empty(first, at_end) and _matches_empty(rest, at_end)
        case _Either(options):
            return any(_matches_empty(option, at_end) for option in options)
        case _Repeat():
            return True
        case _Both(left, right):
            return _matches_empty(left, at_end) and _matches_empty(right, at_end)
        case _Not(body):
            return not _matches_empty(body, at_end)
        case _End():
            return at_end


def _derivative(node: _Node, character: str) -> _Node:
    """What may follow `character` at the start of a match."""
    match node:
        case _Characters():
            return EMPTY if node.has(character) else NOTHING
        case _Sequence(first, rest):
            after_first = _sequence(_derivative(first, character), rest)
            if not _matches_empty(first, False):
                return after_first
            return _either(after_first, _derivative(rest, character))
        case _Either(options):
            return _either(*(_derivative(option, character) for option in options))
        case _Repeat(body):
            return _sequence(_derivative(body, character), node)
        case _Both(left, right):
            return _both(_derivative(left, character), _derivative(right, character))
        case _Not(body):
            return _not(_derivative(body, character))
        case _End():
            return NOTHING


class LinearRegex:
    """A regular expression that a name is matched against from its start, as `re.match` does.

    Raises:
        UnsupportedError: the expression uses what isn't understood here, or is malformed or too large.
    """

    def __init__(self, pattern: str, *, where: str = "") -> None:
        self.pattern = pattern
        self.where = where
        start = _Parser(pattern, where).parse()
        self._states = [start]
        self._numbers: dict[_Node, int] = {start: 0}
        self._next: dict[tuple[int, str], int] = {}

    def match(self, name: str) -> bool:
        """Whether a prefix of `name` matches the expression."""
        state = 0
        for character in name:
            following = self._next.get((state, character))
            state = self._step(state, character) if following is None else following
        return _matches_empty(self._states[state], True)

    def _step(self, state: int, character: str) -> int:
        node = _derivative(self._states[state], character)
        if len(self._next) > MAX_STATES or _size(node) > MAX_STATE_SIZE:
            reason = f"the pattern {self.pattern[:60]!r} needs too many states"
            raise UnsupportedError(reason, where=self.where)
        number = self._numbers.setdefault(node, len(self._states))
        if number == len(self._states):
            self._states.append(node)
        self._next[state, character] = number
        return number


def _size(node: _Node) -> int:
    """Nodes of an expression, counted no further than is needed to refuse it."""
    count, waiting = 0, [node]
    while waiting and count <= MAX_STATE_SIZE:
        count += 1
        match waiting.pop():
            case _Sequence(first, rest):
                waiting += (first, rest)
            case _Either(options):
                waiting += options
            case _Repeat(body) | _Not(body):
                waiting.append(body)
            case _Both(left, right):
                waiting += (left, right)
            case _:
                pass
    return count


def _span(first: str, last: str) -> frozenset[str]:
    return frozenset(chr(code) for code in range(ord(first), ord(last) + 1))


_DIGITS = _span("0", "9")
_WORD = _DIGITS | _span("a", "z") | _span("A", "Z") | {"_"}
_SPACE = frozenset(" \t\n\r\f\v")
_CLASSES = {
    "d": _Characters(_DIGITS),
    "D": _Characters(_DIGITS, negated=True),
    "w": _Characters(_WORD),
    "W": _Characters(_WORD, negated=True),
    "s": _Characters(_SPACE),
    "S": _Characters(_SPACE, negated=True),
}
_CONTROL = {"n": "\n", "t": "\t", "r": "\r", "f": "\f", "v": "\v"}


class _Parser:
    """Recursive descent over a pattern, bounded in length, depth and repetition."""

    def __init__(self, pattern: str, where: str) -> None:
        self.pattern = pattern
        self.where = where
        self.at = 0
        self.size = 0
        if len(pattern) > MAX_PATTERN:
            self.refuse("is too long")

    def refuse(self, reason: str) -> NoReturn:
        raise UnsupportedError(f"the pattern {self.pattern[:60]!r} {reason}", where=self.where)

    def peek(self, ahead: str) -> bool:
        return self.pattern.startswith(ahead, self.at)

    def take(self) -> str:
        if self.at >= len(self.pattern):
            self.refuse("ends too early")
        self.at += 1
        return self.pattern[self.at - 1]

    def parse(self) -> _Node:
        node = self.alternatives(0)
        if self.at < len(self.pattern):
            self.refuse("closes a group that is not open")
        return node

    def alternatives(self, depth: int) -> _Node:
        if depth > MAX_NESTING:
            self.refuse("is nested too deep")
        options = [self.concatenation(depth)]
        while self.peek("|"):
            self.at += 1
            options.append(self.concatenation(depth))
        return _either(*options)

    def concatenation(self, depth: int) -> _Node:
        """One alternative; at the top it ends in "anything", which is what follows a lookahead, too."""
        if self.peek("^"):
            if self.pattern[: self.at].strip("(?:") and depth:
                self.refuse("has ^ in the middle, which is not supported")
            self.at += 1
        items: list[tuple[str, _Node]] = []
        while self.at < len(self.pattern) and self.pattern[self.at] not in "|)":
            items.append(self.quantified(depth))
        node = EMPTY if depth else ANYTHING
        for kind, item in reversed(items):
            if kind == "plain":
                node = _sequence(item, node)
                continue
            if depth:
                self.refuse("has a lookahead inside a group, which is not supported")
            ahead = _sequence(item, ANYTHING)
            node = _both(ahead if kind == "ahead" else _not(ahead), node)
        return node

    def quantified(self, depth: int) -> tuple[str, _Node]:
        kind, node = self.atom(depth)
        while self.at < len(self.pattern) and self.pattern[self.at] in "*+?{":
            if kind != "plain" or isinstance(node, _End):
                self.refuse("repeats an assertion")
            node = self.repeated(node)
        return kind, node

    def repeated(self, node: _Node) -> _Node:
        least, most = self.bounds()
        if self.peek("+"):
            self.refuse("has a possessive repeat, which is not supported")
        # A lazy repeat accepts the same names: only whether they match is asked.
        self.at += self.peek("?")
        self.size += _size(node) * max(least, most or 0, 1)
        if self.size > MAX_REPEATED:
            self.refuse("is too large")
        tail: _Node = _repeat(node) if most is None else EMPTY
        for _ in range((most or least) - least):
            tail = _either(EMPTY, _sequence(node, tail))
        for _ in range(least):
            tail = _sequence(node, tail)
        return tail

    def bounds(self) -> tuple[int, int | None]:
        sign = self.take()
        if sign != "{":
            return {"*": (0, None), "+": (1, None), "?": (0, 1)}[sign]
        close = self.pattern.find("}", self.at)
        least, comma, most = self.pattern[self.at : close].partition(",")
        if close < 0 or not (least + most).isdecimal() or len(least) > 4 or len(most) > 4:
            self.refuse("has a repeat that is not understood")
        self.at = close + 1
        low = int(least or 0)
        high = (int(most) if most else None) if comma else low
        if high is not None and high < low:
            self.refuse("has a repeat that is not understood")
        return low, high

    def atom(self, depth: int) -> tuple[str, _Node]:
        character = self.take()
        if character == "(":
            return self.group(depth)
        if character == "[":
            return "plain", self.bracket()
        if character == ".":
            return "plain", ANY
        if character == "$":
            return "plain", _End()
        if character == "\\":
            return "plain", self.escaped()
        if character in "*+?{^":
            self.refuse(f"has {character} in a place that is not supported")
        return "plain", _Characters(frozenset(character))

    def group(self, depth: int) -> tuple[str, _Node]:
        kind = "plain"
        if self.peek("?"):
            if self.peek("?P<"):
                end = self.pattern.find(">", self.at)
                if end < 0:
                    self.refuse("ends too early")
                self.at = end + 1
            elif self.pattern[self.at : self.at + 2] in ("?:", "?=", "?!"):
                kind = {":": "plain", "=": "ahead", "!": "not ahead"}[self.pattern[self.at + 1]]
                self.at += 2
            else:
                self.refuse("has a kind of group that is not supported")
        node = self.alternatives(depth + 1)
        if self.take() != ")":
            self.refuse("does not close a group")
        return kind, node

    def escaped(self) -> _Node:
        character = self.take()
        if character in _CLASSES:
            return _CLASSES[character]
        if character == "Z":
            return _End()
        if character in _CONTROL:
            return _Characters(frozenset(_CONTROL[character]))
        if character.isalnum():
            self.refuse(f"uses \\{character}, which is not supported")
        return _Characters(frozenset(character))

    def bracket(self) -> _Node:
        negated = self.peek("^")
        self.at += negated
        among: frozenset[str] = frozenset()
        first = True
        while first or not self.peek("]"):
            first = False
            low = self.bracket_item()
            if self.peek("-") and not self.peek("-]") and len(low) == 1:
                self.at += 1
                high = self.bracket_item()
                start, end = min(low), min(high)
                if len(high) != 1 or not 0 <= ord(end) - ord(start) <= 256:
                    self.refuse("has a range that is not understood")
                low = _span(start, end)
            among |= low
        self.at += 1
        return _Characters(among, negated)

    def bracket_item(self) -> frozenset[str]:
        character = self.take()
        node = self.escaped() if character == "\\" else _Characters(frozenset(character))
        if not isinstance(node, _Characters) or node.negated:
            self.refuse("has a set that is not supported")
        return node.among
