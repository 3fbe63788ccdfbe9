"""Which modules of a model a quantisation configuration means, whatever each checkpoint calls them.

Configurations list modules by exact names, by wildcards, by a part of the path, or by regular expressions, and
checkpoints differ in how they name the same module: ``model.language_model.layers.3.mlp.experts.7``,
``backbone.layers.3.mixer.experts.7``, ``layers.3.ffn.experts``. Names and patterns are brought to one canonical form
before they are compared; regular expressions, which can't be, are tried on the forms that checkpoints use.
"""

from __future__ import annotations

import re
from collections.abc import Iterable
from dataclasses import dataclass, field
from fnmatch import translate
from functools import lru_cache

from capplan.describe.linear_regex import LinearRegex
from capplan.errors import UnsupportedError

MAX_PATTERNS = 200_000
MAX_UNANCHORED = 256
MAX_NAME = 400

# Components in front of the layers that only say how deep the language model is wrapped.
_WRAPPERS = frozenset({"model", "language_model", "backbone", "transformer", "text_model", "decoder"})

_SYNONYMS = {
    "block_sparse_moe": "mlp",
    "feed_forward": "mlp",
    "ffn": "mlp",
    "attn": "self_attn",
    "attention": "self_attn",
    "shared_expert": "shared_experts",
    "shared_mlp": "shared_experts",
    "w1": "gate_proj",
    "w2": "down_proj",
    "w3": "up_proj",
    "router": "gate",
    "embeddings": "embed_tokens",
    "embed": "embed_tokens",
    "wte": "embed_tokens",
    "head": "lm_head",
    "index_q_proj": "indexer.wq_b",
    "index_k_proj": "indexer.wk",
}

# Mamba hybrids call whatever a layer holds its mixer; a pattern that says so means any of these.
_MIXERS = ("mixer", "self_attn", "linear_attn", "mlp")

_NUMBER = re.compile(r"[0-9]")
_WILDCARD = re.compile(r"[*?\[]")


@lru_cache(maxsize=100_000)
def canonical_name(name: str) -> str:
    """A module's or a pattern's name without wrappers and expert numbers, with one word for each thing.

    ``model.language_model.layers.3.block_sparse_moe.experts.7.w1`` is ``layers.3.mlp.experts.gate_proj``.
    """
    components = name.split(".")
    while len(components) > 1 and components[0] in _WRAPPERS:
        components.pop(0)
    canonical: list[str] = []
    for component in components:
        if canonical and canonical[-1] == "experts" and (component.isdecimal() or component == "*"):
            continue
        canonical.append(_SYNONYMS.get(component, component))
    return ".".join(canonical)


def _canonical_patterns(pattern: str) -> list[str]:
    """The canonical forms of a pattern: several where it says "mixer" for whatever a layer holds."""
    canonical = canonical_name(pattern)
    head, found, tail = canonical.partition(".mixer")
    if found and (not tail or tail[0] in ".*"):
        return [f"{head}.{mixer}{tail}" for mixer in _MIXERS]
    return [canonical]


def names_in_checkpoints(name: str) -> tuple[str, ...]:
    """The forms in which checkpoints write a module's name, for regular expressions to be tried on."""
    numbered = name.replace(".*", ".0")
    bare = numbered.split(".")
    while len(bare) > 1 and bare[0] in _WRAPPERS:
        bare.pop(0)
    inner = ".".join(bare)
    wrapped = (f"{prefix}{inner}" for prefix in ("model.", "language_model.model.", "model.language_model.", ""))
    return tuple(dict.fromkeys((numbered, *wrapped)))


@dataclass
class ModuleNames:
    """A set of modules, as a configuration lists them.

    Args:
        exact: canonical names.
        parts: canonical paths that stand anywhere in a module's path, as whole components.
        prefixes: canonical beginnings (``layers.3.self_attn*``).
        globs: other wildcards, by the literal text in front of the first one.
        regexes: regular expressions.
    """

    exact: set[str] = field(default_factory=set)
    parts: set[str] = field(default_factory=set)
    prefixes: set[str] = field(default_factory=set)
    globs: dict[str, list[re.Pattern[str]]] = field(default_factory=dict)
    regexes: list[LinearRegex] = field(default_factory=list)

    @classmethod
    def of(cls, patterns: Iterable[str], *, anywhere: bool, where: str = "") -> ModuleNames:
        """The modules that `patterns` list.

        Args:
            patterns: names, wildcards, and regular expressions behind ``re:``.
            anywhere: whether a plain name means every module with it in the path (``gate``, ``visual``), or the module
                of exactly this name and those below it.
            where: for errors.

        Raises:
            UnsupportedError: too many patterns, or one that isn't understood.
        """
        names = cls()
        unanchored = 0
        for count, pattern in enumerate(patterns):
            if count >= MAX_PATTERNS or len(pattern) > MAX_NAME:
                raise UnsupportedError("the lists of modules are too long", where=where)
            if pattern.startswith("re:"):
                names.regexes.append(LinearRegex(pattern[3:], where=where))
                unanchored += 1
            else:
                for form in _canonical_patterns(pattern):
                    unanchored += names._add(form, anywhere)
            if unanchored > MAX_UNANCHORED:
                raise UnsupportedError("too many patterns that can match anywhere", where=where)
        return names

    def _add(self, pattern: str, anywhere: bool) -> bool:
        """Add one name or wildcard; whether it is one that must be tried on every module."""
        wildcard = _WILDCARD.search(pattern)
        if wildcard is None:
            (self.parts if anywhere else self.exact).add(pattern)
            return False
        literal = pattern[: wildcard.start()]
        if wildcard.group() == "*" and wildcard.end() == len(pattern) and literal:
            self.prefixes.add(literal)
            return False
        # A wildcard that ends within the path means the modules below it, too.
        expression = re.compile(translate(pattern) + "|" + translate(pattern + ".*"))
        self.globs.setdefault(literal, []).append(expression)
        return not literal

    @property
    def names_layers(self) -> bool:
        """Whether the set may hold a module in one layer and not the same module in another."""
        by_path = self.exact | self.parts | self.prefixes | self.globs.keys()
        return bool(self.regexes) or any(_NUMBER.search(pattern) for pattern in by_path)

    def has(self, name: str) -> bool:
        """Whether the module of this name is in the set."""
        canonical = canonical_name(name)
        if canonical in self.exact or any(outer in self.exact for outer in _outer_paths(canonical)):
            return True
        if self.parts and any(part in self.parts for part in _inner_paths(canonical)):
            return True
        if self.prefixes and any(canonical[:end] in self.prefixes for end in range(1, len(canonical) + 1)):
            return True
        if self.globs:
            for end in range(len(canonical) + 1):
                if any(glob.match(canonical) for glob in self.globs.get(canonical[:end], ())):
                    return True
        return any(regex.match(form) for regex in self.regexes for form in names_in_checkpoints(name))


def _outer_paths(name: str) -> Iterable[str]:
    """``a``, ``a.b`` for ``a.b.c``: the modules that a module is in."""
    position = name.find(".")
    while position >= 0:
        yield name[:position]
        position = name.find(".", position + 1)


def _inner_paths(name: str) -> Iterable[str]:
    """Every run of components of a path."""
    components = name.split(".")
    for start in range(len(components)):
        for end in range(start + 1, len(components) + 1):
            yield ".".join(components[start:end])
