"""Models that only read: Little's law, the pass that prompts share, bounds of the datasheet, and decoders that embed."""

from __future__ import annotations

from pathlib import Path

import pytest

from capplan.errors import UsageError
from capplan.questions.encode import EncodeResult, answered, encode
from capplan.questions.estimate import EstimateResult, LoadRequest
from capplan.questions.prefill import prefill
from capplan.questions.setting import resolve_setting

ENCODER = "xlm-roberta-large"
GPU = "h100-sxm-80gb"


def read(model: str = ENCODER, isl: float = 512, **load: float) -> EncodeResult:
    return encode(model, GPU, load=LoadRequest(isl, 0, **load)).result  # type: ignore[arg-type]


@pytest.mark.parametrize("clients", [1, 8, 100, 3000])
def test_little_s_law(clients: int) -> None:
    result = read(concurrency=clients)
    assert result.request_throughput * result.mean_e2el_ms / 1e3 == pytest.approx(clients)
    assert result.input_throughput == pytest.approx(512 * result.request_throughput)
    assert result.together == min(clients, 8192 // 512)
    assert result.queued == (clients > 16)


def test_no_faster_than_the_datasheet_allows() -> None:
    bound = prefill(ENCODER, GPU, isl=512, batch=16).result
    assert read(concurrency=2000).input_throughput < 16 * 512 / (bound.ttft_bound_ms / 1e3)


def test_more_clients_share_passes_until_they_are_full() -> None:
    rates = [read(concurrency=clients).request_throughput for clients in (1, 4, 16, 64, 1024)]
    assert rates == sorted(rates)
    assert rates[-1] <= read(concurrency=1).saturation_rate * 1.01


def test_an_open_loop_serves_its_rate() -> None:
    assert read(request_rate=20).request_throughput == pytest.approx(20, rel=0.01)
    with pytest.raises(UsageError, match="at most"):
        read(request_rate=1e6)


def test_a_lone_request_takes_at_least_its_pass() -> None:
    result = read(request_rate=0.5)
    assert result.mean_e2el_ms > result.pass_ms


def test_a_decoder_that_embeds_reads_as_an_encoder_does() -> None:
    result = read("qwen3-0.6b", concurrency=16)
    assert result.mean_e2el_ms > 0
    assert result.mean_e2el_ms_low < result.mean_e2el_ms < result.mean_e2el_ms_high


@pytest.mark.parametrize(
    ("model", "osl", "kind"),
    [
        (ENCODER, 0.0, EncodeResult),
        (ENCODER, 64.0, EncodeResult),
        ("qwen3-0.6b", 0.0, EncodeResult),
        ("qwen3-0.6b", 64.0, EstimateResult),
    ],
)
def test_one_question_serves_both(model: str, osl: float, kind: type) -> None:
    load = LoadRequest(512, osl, 4)
    assert isinstance(answered(resolve_setting(model, GPU), load).result, kind)


def test_the_catalog_has_encoders() -> None:
    assert (Path(__file__).parents[2] / "models" / f"{ENCODER}.yaml").is_file()
