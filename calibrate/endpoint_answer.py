"""A server under some loads: what it did, beside what capplan says of the same loads where its device is named."""

from __future__ import annotations

import json
import os
import secrets
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

from calibrate.endpoint import Level, LoadPlan, Say, measure_endpoint
from calibrate.endpoint_client import parse_endpoint
from calibrate.files import write_whole
from capplan.errors import UsageError
from capplan.questions.answer import Answer
from capplan.questions.calibrate import EndpointLevel, EndpointResult

REQUESTS_A_CLIENT = 10
"""Requests of each client of a closed loop where no number is given."""

USUAL_REQUESTS = 100
"""Requests at a rate where no number is given."""

COMPARED = ("mean_ttft_ms", "mean_tpot_ms", "mean_e2el_ms", "request_throughput", "output_throughput")


@dataclass(frozen=True)
class EndpointRequest:
    """What is asked of a server.

    Args:
        url: of the server.
        model: as the server calls it.
        isl: input tokens of a request.
        osl: output tokens of a request.
        concurrencies: requests at once, a level each.
        request_rates: requests a second, a level each.
        most_requests: of each level; None: ten a client.
        shared_prefix: tokens that prompts begin with alike, in a second, warm level.
        chat: by chat completions.
        timeout: seconds of a request.
        seed: of prompts and arrivals; None: another one every time, so that no server has seen the prompts.
        api_key_env: environment variable that holds a key; empty: none.
        save: file for the levels in the form of ``vllm bench serve``.
        setting: device, model and engine for a prediction; empty: none is made.
    """

    url: str
    model: str
    isl: int
    osl: int
    concurrencies: Sequence[int] = ()
    request_rates: Sequence[float] = ()
    most_requests: int | None = None
    shared_prefix: int = 0
    chat: bool = False
    timeout: float = 600.0
    seed: int | None = None
    api_key_env: str = ""
    save: Path | None = None
    setting: Mapping[str, Any] = field(default_factory=dict)


def endpoint_answer(request: EndpointRequest, say: Say) -> Answer[EndpointResult]:
    """Put the server under every load.

    Raises:
        NotFoundError: no server answers.
        UsageError: it refuses, or there is no load.
    """
    endpoint = parse_endpoint(request.url, _headers(request))
    seed = secrets.randbelow(1 << 31) if request.seed is None else request.seed
    found: list[Level] = []
    for plan in plans(request, seed):
        found += measure_endpoint(endpoint, plan, say)
    levels = tuple(_level(level, request) for level in found)
    if request.save is not None:
        write_whole(request.save, json.dumps([bench_result(level) for level in found], indent=1) + "\n", "--save")
    failed = sum(level.failed for level in levels)
    return Answer(
        "calibrate endpoint",
        _inputs(request, seed),
        EndpointResult(endpoint.url, request.model, levels, _warm_over_cold(found)),
        assumptions=_assumptions(found),
        warnings=(f"{failed} requests failed",) if failed else (),
        provenance={"levels": "measured"},
    )


def plans(request: EndpointRequest, seed: int) -> list[LoadPlan]:
    """The levels: one a concurrency, one a rate."""
    if not request.concurrencies and not request.request_rates:
        raise UsageError(
            "there is no load", where="--concurrency", hint="give --concurrency 1,8,32 or --request-rate 2"
        )
    usual = LoadPlan(
        model=request.model,
        isl=request.isl,
        osl=request.osl,
        requests=request.most_requests or USUAL_REQUESTS,
        shared_prefix=request.shared_prefix,
        chat=request.chat,
        timeout=request.timeout,
    )
    found = [
        replace(usual, concurrency=clients, requests=request.most_requests or REQUESTS_A_CLIENT * clients)
        for clients in request.concurrencies
    ]
    found += [replace(usual, request_rate=rate) for rate in request.request_rates]
    return [replace(plan, seed=seed + number) for number, plan in enumerate(found)]


def _headers(request: EndpointRequest) -> dict[str, str]:
    if not request.api_key_env:
        return {}
    key = os.environ.get(request.api_key_env)
    if not key:
        raise UsageError(f"${request.api_key_env} is not set", where="--api-key-env")
    return {"Authorization": f"Bearer {key}"}


def _level(level: Level, request: EndpointRequest) -> EndpointLevel:
    replies = level.answered
    tokens = level.input_tokens + level.output_tokens
    errors = tuple(dict.fromkeys(reply.error for reply in level.replies if reply.error))
    return EndpointLevel(
        prefix=level.prefix,
        concurrency=level.plan.concurrency,
        request_rate=level.plan.request_rate,
        completed=len(replies),
        failed=len(level.replies) - len(replies),
        duration=level.duration,
        total_input_tokens=level.input_tokens,
        total_output_tokens=level.output_tokens,
        request_throughput=len(replies) / level.duration,
        output_throughput=level.output_tokens / level.duration,
        total_token_throughput=tokens / level.duration,
        metrics=level.metrics,
        errors=errors,
        predicted=_predicted(level, request),
    )


def _predicted(level: Level, request: EndpointRequest) -> dict[str, float] | None:
    """What ``capplan estimate`` says of the load, with the tokens that the server counted."""
    replies = level.answered
    if not request.setting or not replies:
        return None
    from capplan.questions.estimate import LoadRequest, estimate

    total = level.input_tokens / len(replies)
    load = LoadRequest(
        isl=total,
        osl=level.output_tokens / len(replies),
        concurrency=level.plan.concurrency,
        request_rate=level.plan.request_rate,
        prefix_hit_rate=min(level.plan.shared_prefix / total, 0.99) if level.prefix == "warm" else 0.0,
    )
    found = estimate(load=load, **request.setting).result
    return {name: float(getattr(found, name)) for name in COMPARED}


def _warm_over_cold(levels: Sequence[Level]) -> float | None:
    """Median TTFT of the warm levels over that of the cold ones."""
    medians = {
        prefix: [level.metrics["median_ttft_ms"] for level in levels if level.prefix == prefix and level.answered]
        for prefix in ("cold", "warm")
    }
    if not medians["cold"] or not medians["warm"]:
        return None
    return sum(medians["warm"]) / sum(medians["cold"])


def _assumptions(levels: Sequence[Level]) -> tuple[str, ...]:
    counted = all(reply.input_tokens is not None for level in levels for reply in level.answered)
    return () if counted else ("the server counts no tokens: a word is taken to be one, and a piece of text too",)


def _inputs(request: EndpointRequest, seed: int) -> dict[str, Any]:
    shown = {name: value for name, value in vars(request).items() if value not in (None, (), "", 0, False)}
    return {**shown, "setting": {name: str(value) for name, value in request.setting.items()}, "seed": seed}


def bench_result(level: Level) -> dict[str, Any]:
    """A level as ``vllm bench serve --save-result`` writes it, which ``capplan calibrate import`` reads."""
    replies = level.answered
    return {
        "backend": "openai-chat" if level.plan.chat else "openai",
        "model_id": level.plan.model,
        "num_prompts": len(level.replies),
        "request_rate": level.plan.request_rate or "inf",
        "max_concurrency": level.plan.concurrency,
        "duration": level.duration,
        "completed": len(replies),
        "failed": len(level.replies) - len(replies),
        "total_input_tokens": level.input_tokens,
        "total_output_tokens": level.output_tokens,
        "request_throughput": len(replies) / level.duration,
        "output_throughput": level.output_tokens / level.duration,
        "total_token_throughput": (level.input_tokens + level.output_tokens) / level.duration,
        **level.metrics,
    }
