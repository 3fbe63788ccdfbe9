"""How many requests and tokens does a model that only reads (embeds, ranks, scores) take a second?"""

from __future__ import annotations

from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING, Unpack

from capplan.errors import UnsupportedError, UsageError
from capplan.questions.answer import Answer, Explained, Provenance
from capplan.questions.drafting import DraftRequest
from capplan.questions.estimate import EstimateResult, LoadRequest, estimate_of
from capplan.questions.pools import PoolsRequest
from capplan.questions.setting import Setting, SettingOptions, resolve_setting
from capplan.questions.setting_memory import fitting_budget
from capplan.serving.open_loop import saturation, serve
from capplan.serving.reading import ReadingServer, reading
from capplan.serving.replica import EngineSettings, Replica
from capplan.serving.spread import Interval, ttft_interval
from capplan.serving.steady_state import OperatingPoint
from capplan.work.step import is_encoder

if TYPE_CHECKING:
    from capplan.describe.gpu import GpuSpec
    from capplan.describe.model import ModelSpec

FIGURES = ("mean_e2el_ms", "request_throughput", "input_throughput")


@dataclass(frozen=True)
class EncodeResult:
    """One operating point of a server that only reads; intervals hold four of five measurements.

    Args:
        mean_e2el_ms: milliseconds of a request.
        request_throughput: requests a second of the deployment.
        input_throughput: input tokens a second.
        concurrency: requests in the system.
        together: prompts that one pass takes.
        queued: whether requests wait for a pass.
        pass_ms: milliseconds of one pass.
        saturation_rate: requests a second that the server cannot exceed.
    """

    mean_e2el_ms: float
    mean_e2el_ms_low: float
    mean_e2el_ms_high: float
    request_throughput: float
    request_throughput_low: float
    request_throughput_high: float
    input_throughput: float
    input_throughput_low: float
    input_throughput_high: float
    concurrency: float
    together: float
    queued: bool
    pass_ms: float
    saturation_rate: float


def encode(
    model: str | ModelSpec, gpu: str | GpuSpec | None = None, *, load: LoadRequest, **options: Unpack[SettingOptions]
) -> Answer[EncodeResult]:
    """Requests and tokens a second of a model that only reads; see `capplan.serving.reading` for the equations.

    Args:
        model: a reference as for ``--model``, or a description; a decoder may read without answering as well.
        gpu: a device's name, file or description.
        load: what clients ask; outputs play no part.
        options: the deployment, as for `resolve_setting`.

    Raises:
        CapplanError: something that does not exist, does not fit, or that no profile stands for.
    """
    return encode_of(resolve_setting(model, gpu, **options), load)


def answered(
    setting: Setting,
    load: LoadRequest,
    drafting: DraftRequest | None = None,
    pools: PoolsRequest | None = None,
    probe: Path | None = None,
) -> Answer[EstimateResult] | Answer[EncodeResult]:
    """`capplan.estimate` where tokens come out, `encode` where none do: an encoder, or no output asked of a decoder."""
    if not is_encoder(setting.spec) and load.osl:
        return estimate_of(setting, load, drafting, pools, probe)
    for flag, given in (("--speculative-tokens", drafting), ("--disaggregate", pools), ("--probe", probe)):
        if given is not None:
            raise UsageError("a server that only reads decodes nothing", where=flag)
    return encode_of(setting, load)


def encode_of(setting: Setting, load: LoadRequest) -> Answer[EncodeResult]:
    """`encode` for a setting that is resolved already."""
    if not setting.corrected:
        raise UnsupportedError(
            f"no measured profile stands for {setting.gpu.name}: there are bounds, and no prediction of serving",
            where="--gpu",
            hint="capplan roofline gives the bounds; capplan calibrate makes a profile",
        )
    workload = reading(replace(load, osl=1.0).workload())
    budget = fitting_budget(setting, round(load.isl), load.max_num_seqs)
    settings = EngineSettings(
        max_num_batched_tokens=setting.deployment.max_num_batched_tokens or budget.plan.max_num_batched_tokens,
        max_num_seqs=budget.plan.max_num_seqs,
    )
    server = ReadingServer(Replica(setting.spec, setting.machine, setting.sharding, setting.formats, settings))
    point = serve(server, workload)
    kernels = setting.machine.kernels
    carried = kernels.carried_error("gemm") if kernels is not None else None
    times = ttft_interval(point.e2e, setting.machine.times, carried)
    rates = times.inverse(point.request_rate * point.e2e)
    if load.request_rate is not None:
        rates = Interval(load.request_rate, load.request_rate)
    far = kernels is not None and kernels.carried is not None
    figures: dict[str, Provenance] = dict.fromkeys(FIGURES, "extrapolated" if far else "fitted")
    notes = ("the spread is that of first tokens of language models: no server that only reads was measured",)
    return Answer(
        command="estimate",
        inputs={**setting.inputs, **vars(load), "osl": 0},
        result=EncodeResult(
            mean_e2el_ms=1e3 * point.e2e,
            mean_e2el_ms_low=1e3 * times.low,
            mean_e2el_ms_high=1e3 * times.high,
            request_throughput=point.request_rate,
            request_throughput_low=rates.low,
            request_throughput_high=rates.high,
            input_throughput=point.input_rate,
            input_throughput_low=rates.low * load.isl,
            input_throughput_high=rates.high * load.isl,
            concurrency=point.request_rate * point.e2e,
            together=point.terms.admitted,
            queued=point.queued,
            pass_ms=1e3 * point.terms.prefill,
            saturation_rate=saturation(server, workload),
        ),
        explanation=tuple(_explain(load, point)),
        assumptions=(*setting.assumptions, *budget.notes, *notes),
        warnings=setting.warnings,
        sources=setting.sources,
        provenance=figures,
    )


def _explain(load: LoadRequest, point: OperatingPoint) -> list[Explained]:
    terms = point.terms
    return [
        Explained("prompts together", "k = min(C, budget / L)", "", terms.admitted, "prompts"),
        Explained("one pass", "G(k)", f"{terms.admitted:g} prompts of {load.isl:g}", terms.prefill, "s"),
        Explained("request", "t0 + tok·L + (C/k) · G(k)", "", point.e2e, "s"),
        Explained("rate", "C / E2E", "", point.request_rate, "req/s"),
    ]
