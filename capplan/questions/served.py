"""How many tokens a replica makes: as given, by the rule of thumb, or by an estimate."""

from __future__ import annotations

from dataclasses import dataclass, replace
from fractions import Fraction
from math import ceil
from typing import Literal

from capplan.cost.amounts import Amount
from capplan.cost.cost import Throughput, prefill_time_share, seed_throughput
from capplan.cost.load_profile import LoadProfile, flat_load
from capplan.describe.gpu import GpuSpec
from capplan.describe.model import ModelSpec
from capplan.errors import UsageError
from capplan.questions.answer import Answer
from capplan.questions.cost_request import CostRequest
from capplan.questions.estimate import EstimateResult, LoadRequest, estimate_of, served_replica
from capplan.questions.setting import Setting
from capplan.serving.open_loop import serve
from capplan.serving.steady_state import OperatingPoint, ReplicaServer

Basis = Literal["given", "rule of thumb", "estimate"]

RULE = "throughput = 100 · (P / 7)^-0.6 tokens/s for P billion parameters: a rule of thumb for one request on an A100"


@dataclass(frozen=True)
class Served:
    """What one replica does, and what it stands on.

    Args:
        basis: how its throughput was come by.
        throughput: of one replica.
        gpus: devices of one replica.
        isl: input tokens of a request; None: not told apart.
        osl: output tokens of a request; None: not told apart.
        tokens: tokens of a request; None: not known.
        load: the load, where the throughput's own question implies one.
        answer: the estimate behind it.
        gpu: the device.
        spec: the model.
    """

    basis: Basis
    throughput: Throughput
    gpus: int
    isl: Fraction | None = None
    osl: Fraction | None = None
    tokens: Fraction | None = None
    load: LoadProfile | None = None
    answer: Answer[EstimateResult] | None = None
    gpu: GpuSpec | None = None
    spec: ModelSpec | None = None


def served_as_given(
    request: CostRequest,
    load: LoadRequest | None,
    parameters: float | None,
    gpu: GpuSpec | None = None,
    gpus: int = 1,
) -> Served:
    """A replica whose throughput is given, or follows the rule of thumb.

    Args:
        request: the throughput, and the tokens of a request.
        load: lengths of a request.
        parameters: of the model, for the rule of thumb.
        gpu: the device; None: not said.
        gpus: devices of the replica.

    Raises:
        UsageError: neither is there.
    """
    basis: Basis = "given"
    rate = request.throughput
    if rate is None:
        if parameters is None:
            raise UsageError("how many parameters has the model?", where="--throughput-rule", hint="give --params 7B")
        basis, rate = "rule of thumb", seed_throughput(parameters)
    isl, osl = (Fraction(load.isl), Fraction(load.osl)) if load is not None else (None, None)
    tokens = isl + osl if isl is not None and osl is not None else None
    if request.tokens_per_request is not None:
        tokens = Fraction(request.tokens_per_request)
    total = Amount.of(rate)
    requests = total * (1 / tokens) if tokens is not None else total
    return Served(basis, Throughput(total, requests), gpus, isl, osl, tokens, gpu=gpu)


def served_as_estimated(setting: Setting, load: LoadRequest, limits: LoadRequest | None = None) -> Served:
    """A replica at its operating point.

    In a closed loop that is what so many clients get of it. At a request rate it is one of as many replicas as the rate
    needs, each at its share; what one can do at most is the rate at which it breaks its limits, or saturates.
    """
    count = 1
    profile: LoadProfile | None = None
    if load.request_rate is not None:
        count = ceil(load.request_rate / _capacity(setting, load))
        profile = flat_load(Fraction(load.request_rate) * 86400)
        load = replace(load, request_rate=load.request_rate / count)
    answer = estimate_of(setting, load)
    result = answer.result
    point = _point(setting, load)
    share = prefill_time_share(point.terms.prefill_share, point.terms.decode_step, load.osl, point.terms.admitted)
    requests = Amount.of(result.request_throughput, result.request_throughput_low, result.request_throughput_high)
    if load.request_rate is not None:
        most = Fraction(_capacity(setting, load))
        requests = Amount(
            most,
            most * Fraction(result.mean_e2el_ms) / Fraction(result.mean_e2el_ms_high),
            most * Fraction(result.mean_e2el_ms) / Fraction(result.mean_e2el_ms_low),
        )
    isl, osl = Fraction(load.isl), Fraction(load.osl)
    throughput = Throughput(requests * (isl + osl), requests, requests * isl, requests * osl, share)
    return Served("estimate", throughput, setting.gpus, isl, osl, isl + osl, profile, answer, setting.gpu, setting.spec)


def _capacity(setting: Setting, load: LoadRequest) -> float:
    """The most requests a second of one replica: where it breaks its limits, or saturates."""
    groups = setting.sharding.dp
    found = estimate_of(setting, replace(load, request_rate=None, concurrency=float(groups))).result
    capacity = found.saturation_rate if found.breaking_rate is None else found.breaking_rate
    if capacity <= 0:
        raise UsageError(
            "not even one request keeps to the limits", where="--ttft, --tpot", hint="loosen them, or take more GPUs"
        )
    return capacity


def _point(setting: Setting, load: LoadRequest) -> OperatingPoint:
    replica, _, _ = served_replica(setting, load)
    return serve(ReplicaServer(replica), load.workload())
