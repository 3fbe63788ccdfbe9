"""The working of a ``fit``: from the device's memory to the number of requests, with the numbers put in."""

from __future__ import annotations

from collections.abc import Iterator

from capplan.memory.budget import MemoryBudget, outside_the_fraction
from capplan.questions.answer import Explained


def explain_fit(budget: MemoryBudget) -> Iterator[Explained]:
    """One line a term, then the pool, its blocks, a request's blocks and the concurrency."""
    yield from _device(budget)
    for term in budget.binding.terms:
        yield Explained(term.name, term.formula, f"{term.low} to {term.high} B", term.bytes, "B", term.source)
    yield from _pool(budget)
    yield from _requests(budget)
    offloaded = budget.binding.offloaded
    if offloaded is not None and offloaded.host_bytes:
        yield Explained("in host memory", "a rank's share", "", offloaded.host_bytes, "B")
        yield Explained("across the link in a step", offloaded.formula, "", offloaded.step_bytes, "B")


def _device(budget: MemoryBudget) -> Iterator[Explained]:
    plan, usable = budget.plan, budget.binding.usable_bytes
    if plan.device.bytes is None or usable is None:
        return
    yield Explained("device memory", plan.device.basis, "", plan.device.bytes, "B")
    rules = plan.engine.rules
    share = float(plan.utilization)
    numbers = {
        "total": ("u · M", f"{share:g} · {plan.device.bytes}"),
        "free": ("u · (M - in use - runtime)", f"{share:g} · (…)"),
        "free_after_load": ("M - in use", f"{plan.device.bytes} - {plan.device.in_use}"),
        "whole": ("M - in use", f"{plan.device.bytes} - {plan.device.in_use}"),
    }
    formula, shown = numbers[rules.budget]
    yield Explained("usable", formula, shown, usable, "B", plan.engine.sources.get("budget", ""))


def _pool(budget: MemoryBudget) -> Iterator[Explained]:
    plan, rank, capacity = budget.plan, budget.binding, budget.capacity
    if plan.known.pools:
        yield Explained("pool for caches", "given", "", rank.pool_bytes, "B")
    else:
        outside = outside_the_fraction(plan)
        terms = " - ".join(str(term.bytes) for term in rank.terms if term.name not in outside)
        share = f"{float(plan.utilization):g} · " if plan.engine.rules.budget == "free_after_load" else ""
        yield Explained(
            "pool for caches", f"{share}(usable - Σ terms)", f"{share}({rank.usable_bytes} - {terms})",
            rank.pool_bytes, "B",
        )  # fmt: skip
    source = plan.engine.sources.get("pool", "")
    if capacity.block_bytes:
        numbers = f"⌊{max(0, rank.pool_bytes)} / {capacity.block_bytes}⌋"
        yield Explained("blocks", "⌊pool / bytes of a block⌋", numbers, capacity.blocks, "", source)
    for part in capacity.parts:
        name = f"{part.layers} layers: {part.name}"
        formula = f"blocks of {part.block_size} tokens that one request takes" if part.request_blocks else "reserved"
        value = part.request_blocks or part.bytes
        yield Explained(name, formula, "", value, "" if part.request_blocks else "B", source)


def _requests(budget: MemoryBudget) -> Iterator[Explained]:
    plan, capacity = budget.plan, budget.capacity
    length = plan.max_model_len
    if capacity.block_bytes:
        needs = " + ".join(str(part.request_blocks) for part in capacity.parts) or "0"
        yield Explained("blocks of one request", "Σ over groups", needs, capacity.request_blocks, "")
    yield Explained(
        "one request, reserved", "blocks · bytes of a block", f"at {length} tokens", capacity.request_bytes, "B"
    )
    shown = f"{capacity.blocks} / {capacity.request_blocks}" if capacity.block_bytes else ""
    yield Explained("concurrency", "what fits / what one request takes", shown, float(capacity.concurrency), "")
    printed = {
        "blocks": "blocks · block size",
        "blocks_over_groups": "⌊blocks / groups⌋ · smallest block",
        "concurrency": "⌊concurrency · max_model_len⌋",
        "tokens": "slots",
        "none": "slots · length",
    }[plan.engine.rules.printed_tokens]
    source = plan.engine.sources.get("printed_tokens", "")
    yield Explained("tokens, as printed", printed, "", capacity.printed_tokens, "tokens", source)
    yield Explained("tokens, true capacity", "", "", capacity.capacity_tokens, "tokens")
