"""How an engine shares out device memory, by version: data in ``engines/*.yaml``, one file an engine.

A file lists changes in the order of versions; `engine_rules` adds up those that a version has. What a rule means in
bytes is computed in `capplan.memory`; here it is only named, with the engine's own source file beside it.
"""

from __future__ import annotations

import re
from dataclasses import dataclass, field, fields
from datetime import date
from functools import lru_cache
from pathlib import Path
from typing import Annotated, Any, Literal

from capplan.describe.parts import Part, Whole, hydrated
from capplan.describe.yaml_file import read_yaml
from capplan.errors import UsageError, did_you_mean

Count = Annotated[int, Whole(0)]
Size = Annotated[int, Whole(1)]
Budget = Literal["total", "free", "free_after_load", "whole"]
Pool = Literal["groups", "tokens", "window_shares", "cells", "dynamic"]
PrintedTokens = Literal["blocks", "blocks_over_groups", "concurrency", "tokens", "none"]
StateMode = Literal["none", "align", "all"]

_FOLDER = Path(__file__).parent / "engines"
_MIB = 2**20
_GENERATION = re.compile(r"\bV([01])\b(?!\.)", re.IGNORECASE)


@dataclass(frozen=True, kw_only=True)
class Estimate(Part):
    """A figure that no formula gives: its usual value and the interval of what engines have printed, in MiB."""

    mib: Count
    low_mib: Count
    high_mib: Count

    @property
    def bytes(self) -> tuple[int, int, int]:
        """(value, low, high) in bytes."""
        return self.mib * _MIB, self.low_mib * _MIB, self.high_mib * _MIB


@dataclass(frozen=True, kw_only=True)
class Tier(Part):
    """A default that depends on the device: the first tier that is large enough counts."""

    least_gib: Count
    """Device memory from which the tier holds."""
    max_num_batched_tokens: Size
    max_num_seqs: Size


@dataclass(frozen=True, kw_only=True)
class EngineRules(Part):
    """The rules of one engine at one version."""

    budget: Budget
    """What the fraction is of: all device memory, what is free when the engine starts, what is free once the engine is
    loaded, or no fraction: whatever is there."""
    utilization: float | None = None
    """The fraction's default; None: the engine works it out from its reserve (`reserve`)."""
    utilization_flag: str
    pool: Pool
    """How the cache is laid out: blocks in groups that share a pool; slots for single tokens; a share of the pool for
    each window; cells a slot and layer; tensors that grow."""
    printed_tokens: PrintedTokens
    block_size: Size = 1
    latent_block_size: Size | None = None
    """The block size of MLA's kernels on the architectures below; None: as for other attention."""
    latent_block_architectures: tuple[str, ...] = ()
    hybrid_manager: bool = False
    """Windowed layers have groups of their own and keep no more than their window."""
    chunked_hybrid: bool = True
    """The same for chunked attention."""
    bounded_windows: bool = False
    """A model whose layers all slide reserves no more than the window."""
    concurrency_by_blocks: bool = False
    """Concurrency counts whole blocks a request; False: tokens of the pool over the length."""
    group_padding: float = 1.0
    """The groups take the larger kind's size when it is below this multiple of the smaller kind's."""
    in_flight_batches: Size = 1
    """Batches whose tokens a windowed layer may still have to hold."""
    state_alignment: Size = 16
    """The attention block of a hybrid is a multiple of this."""
    latent_state_alignment: Size = 16
    """The same where its attention is MLA."""
    state_modes: tuple[StateMode, ...] = ()
    """How states may be kept for prefix caching, the default first; empty: they may not."""
    state_prefix_caching: bool = False
    """Prefix caching of hybrids is on by default."""
    state_dtype: Literal["model", "fp32", "reference"] = "model"
    """The dtype of recurrent states where the configuration names none: the model's, or that of its reference code."""
    convolution_dtype: Literal["model", "fp32"] = "model"
    convolution_columns_dropped: Count = 1
    """Columns of a convolution's kernel that its state does without."""
    state_slots_extra: Count = 0
    """State slots beside those of the requests."""
    state_memory_ratio: float = 0.0
    """Share of the pool for states over the share for tokens."""
    state_slots_per_request: Size = 1
    """State slots a running request needs while prefix caching is on."""
    window_pool_ratio: float | None = None
    """Slots of windowed layers over slots of full layers; None: as many."""
    latent_cache: Literal["latent", "expanded"] = "latent"
    expanded_head_multiple: Size = 1
    """Heads of an expanded MLA cache are padded to a multiple of this."""
    sparse_latent_bytes: Size | None = None
    """Bytes of a latent in the fp8 layout of sparse attention; None: no such layout."""
    sparse_index_scale_bytes: Count = 0
    """Bytes of scales beside an indexer key of one byte an element."""
    vocabulary_multiple: Size = 1
    rotary_cache: bool = False
    """Cosines and sines of every position are kept, and counted with the weights."""
    mxfp4_intermediate_multiple: Size = 1
    mxfp4_hidden_multiple: Size = 1
    graphs_in_budget: bool = False
    prefill_whole_prompts: bool = False
    """A step takes at least a whole prompt, unless chunked prefill is on."""
    chunked_prefill_above: Size | None = None
    """Length above which chunked prefill switches itself on."""
    chunked_prefill_tokens: Size = 512
    context_multiple: Size = 1
    """The context is padded to a multiple of this."""
    window_multiple: Size = 1
    tiers: tuple[Tier, ...] = ()
    logit_bytes: Size = 4
    """Bytes that the sampler needs for one logit."""
    graphs: Estimate | None = None
    runtime: Estimate
    """Memory that is not PyTorch's on one device: the CUDA context, kernels, workspaces."""
    collectives: Estimate | None = None
    """What several ranks need beside it: NCCL's buffers, custom all-reduce."""


@dataclass(frozen=True, kw_only=True)
class Change(Part):
    """What an engine does from a version on."""

    since: str
    rules: dict[str, Any]
    sources: dict[str, str] = field(default_factory=dict)


@dataclass(frozen=True, kw_only=True)
class EngineFile(Part):
    """One file of ``engines/``."""

    schema: Literal[1] = 1
    name: str
    title: str
    latest: str
    first_new_generation: str | None = None
    """The version from which ``V1`` is the default, and before which ``V0`` is."""
    releases: dict[str, str] = field(default_factory=dict)
    """Dates of releases, so that a version may be given as a date."""
    changes: tuple[Change, ...]


@dataclass(frozen=True)
class Engine:
    """An engine at a version.

    Args:
        name: the engine.
        title: its name for people.
        version: the version whose rules these are.
        rules: the rules.
        sources: the engine's source file behind each rule.
    """

    name: str
    title: str
    version: str
    rules: EngineRules
    sources: dict[str, str]


def engine_names() -> tuple[str, ...]:
    """All engines that are described."""
    return tuple(sorted(path.stem for path in _FOLDER.glob("*.yaml")))


@lru_cache(maxsize=8)
def _read(name: str) -> EngineFile:
    return hydrated(EngineFile, read_yaml(_FOLDER / f"{name}.yaml").data)


@lru_cache(maxsize=64)
def engine_rules(name: str, version: str | None = None) -> Engine:
    """The rules of an engine at a version: a number, a date, or None for the latest that is described.

    Raises:
        UsageError: no such engine, or not a version.
    """
    if name not in engine_names():
        raise UsageError(
            f"{name[:40]!r} is not an engine; valid are {', '.join(engine_names())}",
            where="--engine",
            hint=did_you_mean(name, engine_names()),
        )
    file = _read(name)
    wanted = _version(file, version)
    merged: dict[str, Any] = {}
    sources: dict[str, str] = {}
    for change in file.changes:
        if version_key(change.since) <= version_key(wanted):
            merged |= change.rules
            sources |= change.sources
    return Engine(file.name, file.title, wanted, hydrated(EngineRules, merged), sources)


def version_key(version: str) -> tuple[int, ...]:
    """A version as numbers that compare: ``0.10`` is ``0.10.0``, and ``0.6.x`` stands behind every 0.6."""
    numbers = [10**6 if part == "x" else int(part) for part in version.split(".")]
    return tuple(numbers + [0] * (4 - len(numbers)))


def _version(file: EngineFile, text: str | None) -> str:
    """The version that a user's text means, at least the first and with its generation obeyed."""
    if text is None or text.strip().lower() in ("latest", "auto"):
        return file.latest
    generation = _GENERATION.search(text)
    version = _dated(file, text) or _numbered(_GENERATION.sub(" ", text))
    boundary = file.first_new_generation
    if version is None:
        if not (generation and boundary):
            raise UsageError(
                f"{text[:40]!r} is not a version of {file.title}",
                where="--engine-version",
                hint=f"such as {file.latest}, or a date such as 2026-05",
            )
        version = boundary
    if generation and boundary:
        older = version_key(version) < version_key(boundary)
        if generation[1] == "1" and older:
            version = boundary
        elif generation[1] == "0" and not older:
            before = (change.since for change in file.changes if version_key(change.since) < version_key(boundary))
            version = max(before, key=version_key, default=file.changes[0].since)
    first = file.changes[0].since
    return version if version_key(version) >= version_key(first) else first


def _numbered(text: str) -> str | None:
    """``v0.6.5 dev`` -> ``0.6.5``, ``b10840`` -> ``10840``, ``0.6.x`` -> ``0.6.x``."""
    match = re.search(r"(?<![\w.])(?:v|b)?(\d{1,6}(?:\.\d{1,6}){0,3}(?:\.x)?)", text, re.IGNORECASE)
    return match[1].lower() if match else None


def _dated(file: EngineFile, text: str) -> str | None:
    """The last release at the end of the month (or on the day) that `text` names."""
    match = re.search(r"\b(20\d\d)-(0[1-9]|1[0-2])(?:-(0[1-9]|[12]\d|3[01]))?\b", text)
    if match is None or not file.releases:
        return None
    day = f"{match[1]}-{match[2]}-{match[3] or '31'}"
    known = [version for version, released in file.releases.items() if released <= day]
    return max(known, key=version_key, default=file.changes[0].since)


def check_engine_file(name: str) -> None:
    """Raise unless every version of an engine's file makes whole rules, with real dates and known fields.

    Raises:
        ValueError: what is wrong.
    """
    file = _read(name)
    known = {entry.name for entry in fields(EngineRules)}
    for change in file.changes:
        unknown = (set(change.rules) | set(change.sources)) - known
        if unknown:
            raise ValueError(f"{name}: {sorted(unknown)[0]!r} is not a rule")
        engine_rules(name, change.since)
    for released in file.releases.values():
        date.fromisoformat(released)
    keys = [version_key(change.since) for change in file.changes]
    if keys != sorted(keys):
        raise ValueError(f"{name}: the changes are not in the order of versions")
