"""A machine with planted constants, so that tests of the timing layer hang on no measured profile."""

from __future__ import annotations

from dataclasses import replace
from functools import cache, lru_cache

from capplan.describe.gpu import GpuSpec, Source
from capplan.describe.gpu_catalog import load_gpu
from capplan.describe.kernel_constants import (
    CollectiveConstants,
    Constants,
    DecodeAttentionConstants,
    GemmConstants,
    GroupedGemmConstants,
    MlaDecodeConstants,
    PrefillAttentionConstants,
)
from capplan.describe.model import ModelSpec
from capplan.describe.profile import Profile, rated_hardware
from capplan.describe.profile_choice import KernelProfile
from capplan.describe.profile_table import KINDS, KernelFit, KernelKey, Residuals, Spread, write_table
from capplan.describe.resolve import resolve_model
from capplan.timing.machine import Machine

SPREAD = Spread(0.05, 0.2, 0.9, 1.15)
GEMM = GemmConstants(0.81, 0.92, 2.4e-6, 3e-6, 0.5)
PREFILL = PrefillAttentionConstants(0.69, 0.5, 12e-6, 1.4)
DECODE = DecodeAttentionConstants(0.87, 11.5e-6, 4e-6, 3.4e-6)
MLA_DECODE = MlaDecodeConstants(0.89, 0.9, 11e-6, 12e-6, 100.0)
EXPERTS = GroupedGemmConstants(0.5, 0.9, 30e-6, 2.0, 1e-7)
WIDE_EXPERTS = GroupedGemmConstants(0.8, 0.9, 90e-6, 1.5, 1e-7)
"""A second kernel for experts: slower to start, faster for many tokens."""
ONE_SHOT = CollectiveConstants(4e-6, 0.3, 1.0)
LIBRARY = CollectiveConstants(10e-6, 0.8, 0.6)
"""Two collectives: one quick for small messages, one for large."""

_WIDE = (0.0, 1e15)


def _fit(kind: str, constants: Constants, **key: object) -> KernelFit:
    names = {"engine": "vllm", "version": "1", "kernel": "planted"} | key
    return KernelFit(
        kind,  # type: ignore[arg-type]
        KernelKey(**names),  # type: ignore[arg-type]
        constants,
        100,
        10,
        Residuals(0.04, 0.2, SPREAD),
        dict.fromkeys(KINDS[kind].shape, _WIDE),
    )


def _fits() -> list[KernelFit]:
    fits = [_fit("gemm", GEMM, format=name) for name in ("bf16", "fp8", "fp8_block")]
    for form in ("bf16", "fp8", "fp8_block", "mxfp4_weight_only"):
        fits.append(_fit("grouped_gemm", EXPERTS, format=form))
        fits.append(_fit("grouped_gemm", WIDE_EXPERTS, format=form, kernel="wide"))
    for cache_format in ("bf16", "fp8"):
        fits += [
            _fit("prefill_attention", PREFILL, format="bf16", kv_format=cache_format, head_dim=128, window=window)
            for window in ("full", "window")
        ]
        fits += [
            _fit(
                "decode_attention",
                DECODE,
                format="bf16",
                kv_format=cache_format,
                head_dim=128,
                heads=heads,
                window=window,
            )
            for heads in ("mha", "gqa", "mqa")
            for window in ("full", "window")
        ]
        fits.append(_fit("mla_prefill", PREFILL, kv_format=cache_format, absorbed="no"))
        fits.append(_fit("mla_decode", MLA_DECODE, kv_format=cache_format))
    for collective in ("all_reduce", "all_gather", "reduce_scatter", "all_to_all"):
        for gpus in (2, 4, 8):
            fits.append(_fit("collective", LIBRARY, engine="nccl", collective=collective, gpus=gpus))
    fits += [_fit("collective", ONE_SHOT, collective="all_reduce", gpus=gpus) for gpus in (2, 4, 8)]
    return fits


@cache
def planted(name: str = "h100-sxm-80gb") -> Profile:
    """A profile of a device with planted constants."""
    gpu = device(name)
    hardware = rated_hardware(gpu)
    assert hardware is not None
    fits = _fits()
    return Profile(
        name=gpu.name,
        title="planted",
        fitted="2026-11-30",
        source=Source(source="planted", date="2026-11-30"),
        hardware=hardware,
        tables={
            name: write_table(kind, [fit for fit in fits if fit.kind == name])  # type: ignore[misc]
            for name, kind in KINDS.items()
            if any(fit.kind == name for fit in fits)
        },
    )


@cache
def device(name: str) -> GpuSpec:
    """A device of the catalog."""
    return load_gpu(name)


@cache
def model(name: str) -> ModelSpec:
    """A model of the catalog."""
    return resolve_model(name).spec


@lru_cache(maxsize=256)
def machine(
    name: str = "h100-sxm-80gb",
    engine: str = "vllm",
    *,
    bandwidth: float = 1.0,
    flops: float = 1.0,
    graphs: bool = True,
) -> Machine:
    """A machine with planted constants whose bandwidth and rates are multiplied by factors."""
    gpu = faster(device(name), bandwidth, flops)
    hardware = rated_hardware(gpu)
    assert hardware is not None
    return Machine(gpu, KernelProfile(planted(name), hardware), engine, cuda_graphs=graphs)


def faster(gpu: GpuSpec, bandwidth: float, flops: float) -> GpuSpec:
    """The device with more bandwidth or more FLOP/s."""
    return replace(
        gpu,
        memory=replace(gpu.memory, bandwidth=gpu.memory.bandwidth * bandwidth),
        dense_rates={form: rate * flops for form, rate in gpu.dense_rates.items()},
    )
