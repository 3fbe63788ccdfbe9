"""Older versions of engines: which era a version belongs to, and what that adds."""

from __future__ import annotations

import pytest

from capplan.describe.engine_eras import era_before, era_of
from capplan.describe.engine_times import EngineTimes
from capplan.describe.resolve import resolve_model
from capplan.serving.batch_run import batch_run
from capplan.serving.forecast import forecast, known_replica
from capplan.serving.measured_server import MeasuredServer

DENSE, LATENT = (resolve_model(name).spec for name in ("qwen2.5-0.5b", "deepseek-r1"))


@pytest.mark.parametrize(
    ("engine", "version", "date", "before"),
    [
        ("vllm", "0.4.2", "", "0.6.0"),
        ("vllm", "0.6.3", "", "0.8.0"),
        ("vllm", "0.7.4.dev", "", "0.8.0"),
        ("vllm", "0.6.3.dev116 (ROCm 6.1)", "", "0.8.0 on ROCm"),
        ("vllm", "0.4.2 (ROCm)", "", "0.6.0"),
        ("vllm", "0.17.1 (ROCm 7)", "", ""),
        ("sglang", "0.4.3 (ROCm)", "", "0.4.4"),
        ("vllm", "v0.17.1", "", ""),
        ("vllm", "acbed3e (2023-10-06)", "", "0.6.0"),
        ("vllm", "", "", ""),
        ("vllm", "main", "", ""),
        ("sglang", "0.4.3.post2", "", "0.4.4"),
        ("sglang", "0.5.9", "", ""),
        ("trtllm", "", "2025-03-18", "0.19.0"),
        ("trtllm", "1.2.0rc2", "2025-03-18", ""),
        ("llama.cpp", "b4580", "", ""),
    ],
)
def test_versions_find_their_era(engine: str, version: str, date: str, before: str) -> None:
    assert era_before(engine, version, date) == before


def test_an_era_adds_to_every_step() -> None:
    """Qwen2.5-0.5B at batch 1 took 3.21 ms a token on vLLM 0.6.3 where today's terms give 2.0: 1.15 ms of scheduler."""
    era = era_of("vllm", "0.8.0", DENSE)
    assert era is not None
    assert era.times(EngineTimes(), DENSE.depth).per_step == pytest.approx(1.15e-3)
    assert era.pool_share == 1


def test_latent_attention_has_eras_of_its_own() -> None:
    era = era_of("vllm", "0.8.0", LATENT)
    assert era is not None
    assert era.times(EngineTimes(per_step=1e-3), 61).per_step == pytest.approx(1e-3 + 1.15e-3 + 61 * 0.35e-3)
    assert 0 < era.pool_share < 1
    assert era_of("sglang", "0.4.4", DENSE) is None
    assert era_of("sglang", "0.4.4", LATENT) is not None
    assert era_of("vllm", "", LATENT) is None


def test_builds_on_rocm_had_the_librarys_all_reduces() -> None:
    """Llama-3.1-405B for one client took 50.2 ms on eight MI300X, of 126 layers; DeepSeek-R1, which the constant was not
    fitted to, 46.2, 50.9 and 55.6 ms for four, eight and sixteen."""
    eras = [era_of("vllm", name, spec) for name in ("0.8.0 on ROCm", "0.8.0") for spec in (DENSE, LATENT)]
    dense, latent, plain, plainer = (era for era in eras if era is not None)
    assert (dense.rocm, latent.rocm, plain.rocm, plainer.rocm) == (True, True, False, False)
    assert latent.per_layer - plainer.per_layer == pytest.approx(dense.per_layer - plain.per_layer)
    assert latent.pool_share == plainer.pool_share
    for model, isl, osl, clients, measured in (
        ("llama3.1-405b", 80, 85, 1, 50.19), ("deepseek-r1", 3200, 800, 4, 46.2), ("deepseek-r1", 3200, 800, 8, 50.9),
        ("deepseek-r1", 3200, 800, 16, 55.6),
    ):  # fmt: skip
        precision = "bf16" if "llama" in model else None
        server = MeasuredServer(
            model, precision, "mi300x", "vllm", isl, osl, clients, gpus=8, tp=8, era="0.8.0 on ROCm", waves=None
        )
        assert 1e3 * forecast(server).point.tpot == pytest.approx(measured, rel=0.06)


def test_graphs_once_ended_at_8192_positions() -> None:
    """Qwen2-0.5B on an A100 under vLLM 0.4.2: 3.7 ms a token at 1,024 positions, 9.2 at 15,360."""
    server = MeasuredServer("qwen2.5-0.5b", "bf16", "a100-sxm-80gb", "vllm", 1, 2048, 1, era="0.6.0")
    short, long = (batch_run(known_replica(server), 1, isl, 2048).decode_step for isl in (1, 14336))
    assert short == pytest.approx(3.70e-3, rel=0.1)
    assert long == pytest.approx(9.18e-3, rel=0.1)
