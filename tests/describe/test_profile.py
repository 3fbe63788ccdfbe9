"""Profiles: the text of their tables, their files, what ships, and which constants stand for what is wanted."""

from __future__ import annotations

import time
from dataclasses import replace
from pathlib import Path

import pytest

from calibrate.profiles import profile_yaml
from capplan.describe.gpu import Source
from capplan.describe.gpu_catalog import load_gpu
from capplan.describe.kernel_constants import DecodeAttentionConstants, GemmConstants
from capplan.describe.profile import CarriedError, Profile, RatedHardware, list_profiles, load_profile, read_profile
from capplan.describe.profile_choice import KernelProfile, Wanted, head_group, profile_for
from capplan.describe.profile_table import (
    KINDS,
    LOCAL_KINDS,
    KernelFit,
    KernelKey,
    Residuals,
    Spread,
    TableError,
    parse_table,
    size_class,
    write_table,
)
from capplan.errors import InvalidFileError, NotFoundError

SPREAD = Spread(0.05, 0.15, 0.9, 1.1)
RESIDUALS = Residuals(0.04, 0.14, SPREAD, {"small": SPREAD, "large": Spread(0.02, 0.06, 0.97, 1.04)})
GEMM_FIT = KernelFit(
    "gemm", KernelKey("vllm", "1.0", "cublas", format="bf16"), GemmConstants(0.8, 0.9, 2.5e-6, 4e-6, 0.0), 35000, 360,
    RESIDUALS, {"m": (1, 32768), "n": (256, 65536), "k": (256, 65536)},
)  # fmt: skip


def decode_fit(
    engine: str, kv_format: str, head_dim: int, heads: str, window: str = "full", points: int = 500
) -> KernelFit:
    key = KernelKey(engine, "1", "fa3", "bf16", kv_format, head_dim, heads, window)
    constants = DecodeAttentionConstants(0.8, 1e-5, 0.0, 3e-6)
    domain = {"batch": (1.0, 2048.0), "context": (2.0, 131072.0), "heads": (1.0, 96.0), "kv_heads": (1.0, 8.0)}
    return KernelFit("decode_attention", key, constants, points, 20, RESIDUALS, domain)


DECODE_FITS = (
    decode_fit("vllm", "bf16", 128, "gqa"),
    decode_fit("vllm", "fp8", 128, "gqa"),
    decode_fit("vllm", "bf16", 64, "gqa"),
    decode_fit("vllm", "bf16", 128, "mha"),
    decode_fit("sglang", "bf16", 256, "gqa", points=900),
)
HARDWARE = RatedHardware(
    architecture="hopper", compute_capability="9.0", dense_rates={"bf16": 989.4e12}, bandwidth=3.35e12,
    compute_units=132, link=450e9, link_kind="scale_up",
)  # fmt: skip
PROFILE = Profile(
    name="made-up", title="Made up", fitted="2026-11-30", source=Source(source="nowhere", date="2026-11-30"),
    hardware=HARDWARE,
    carried_errors=(
        CarriedError(kind="gemm", relation="same_architecture", tried_on=("h200-sxm-141gb",), points=10, median=0.07,
                     p90=0.2, low=0.85, high=1.2),
    ),
    tables={"gemm": write_table(KINDS["gemm"], [GEMM_FIT]),
            "decode_attention": write_table(KINDS["decode_attention"], DECODE_FITS)},
)  # fmt: skip


def test_a_table_comes_back_from_its_text() -> None:
    (read,) = parse_table("gemm", write_table(KINDS["gemm"], [GEMM_FIT]))
    assert read.key == GEMM_FIT.key
    assert read.domain == GEMM_FIT.domain
    assert read.residuals == GEMM_FIT.residuals
    assert read.constants == GemmConstants(0.8, 0.9, pytest.approx(2.5e-6), pytest.approx(4e-6), 0.0)
    assert (read.points, read.configurations) == (35000, 360)


def test_a_profile_comes_back_from_its_file(tmp_path: Path) -> None:
    path = tmp_path / "made-up.yaml"
    path.write_text(profile_yaml(PROFILE))
    read = read_profile(path)
    assert read == replace(PROFILE, tables={kind: table.rstrip("\n") + "\n" for kind, table in PROFILE.tables.items()})
    assert read.all_fits() == PROFILE.all_fits()


@pytest.mark.parametrize(
    ("old", "new", "message"),
    [
        ("launch_us", "start_us", "heading of gemm does not fit"),
        ("0.8 ", "1.8 ", "outside what is physical"),
        ("0.8 ", "fast ", "could not convert"),
        ("1..32768", "1-32768", "is not low..high"),
        ("0.05/0.15/0.9/1.1", "0.05/0.15/0.9", "is not median/p90/low/high"),
        ("0.05/0.15/0.9/1.1", "0.05/0.15/1.9/1.1", "not in order"),
        (" 35000 ", " ", "columns where"),
    ],
)
def test_a_wrong_line_is_told_with_its_place(tmp_path: Path, old: str, new: str, message: str) -> None:
    path = tmp_path / "made-up.yaml"
    text = profile_yaml(replace(PROFILE, tables={"gemm": PROFILE.tables["gemm"]}))
    assert old in text
    path.write_text(text.replace(old, new, 1))
    with pytest.raises(InvalidFileError, match=message) as caught:
        read_profile(path)
    lines = path.read_text().splitlines()
    number = int(caught.value.where.split(":")[1])
    assert lines[number - 1].lstrip().startswith(("engine", "vllm"))


def test_an_unknown_kind_of_table_is_told(tmp_path: Path) -> None:
    path = tmp_path / "made-up.yaml"
    path.write_text(profile_yaml(PROFILE).replace("  gemm: |", "  gem: |"))
    with pytest.raises(InvalidFileError):
        read_profile(path)


def test_an_empty_table_has_no_fits() -> None:
    assert parse_table("gemm", "\n") == ()
    with pytest.raises(TableError):
        parse_table("gemm", "engine version")


def test_size_classes() -> None:
    assert [size_class(seconds) for seconds in (1e-6, 49.9e-6, 50e-6, 499e-6, 500e-6)] == [
        "small", "small", "medium", "medium", "large",
    ]  # fmt: skip


# --- what ships ------------------------------------------------------------------------------------------------

SHIPPED = (
    "a100-sxm-80gb", "b200-sxm-180gb", "b300-sxm-288gb", "gb200-nvl72-186gb", "gb300-nvl72-279gb", "h100-sxm-80gb",
    "h200-sxm-141gb", "l40s", "rtx-pro-6000-server",
)  # fmt: skip


def test_nine_profiles_ship() -> None:
    assert tuple(sorted(profile.name for profile in list_profiles())) == SHIPPED


@pytest.mark.parametrize("name", SHIPPED)
def test_a_shipped_profile_is_valid_by_pydantic_and_by_its_tables(name: str, tmp_path: Path) -> None:
    shipped = load_profile(name)
    copy = tmp_path / f"{name}.yaml"
    copy.write_text(profile_yaml(shipped))
    assert read_profile(copy) == shipped  # a copy is a user's file: validated in full
    kinds = {fit.kind for fit in shipped.all_fits()}
    assert kinds == set(KINDS) - set(LOCAL_KINDS)
    assert shipped.carried_errors


@pytest.mark.parametrize("name", SHIPPED)
def test_a_shipped_profile_has_its_gpus_figures(name: str) -> None:
    gpu, hardware = load_gpu(name), load_profile(name).hardware
    assert hardware.bandwidth == gpu.memory.bandwidth
    assert hardware.compute_units == gpu.compute_units
    assert hardware.dense_rates == gpu.dense_rates


def test_a_profile_loads_in_milliseconds() -> None:
    load_profile("h100-sxm-80gb").all_fits()
    best = 1.0
    for _ in range(3):
        parse_table.cache_clear()
        start = time.perf_counter()
        assert load_profile("h100-sxm-80gb").fits("gemm")
        best = min(best, time.perf_counter() - start)
    assert best < 0.05


def test_profiles_answer_to_the_gpus_aliases() -> None:
    assert load_profile("h100").name == "h100-sxm-80gb"
    with pytest.raises(NotFoundError, match="no profile named 'h101'"):
        load_profile("h101")


# --- which constants stand for what is wanted --------------------------------------------------------------------


def chosen(wanted: Wanted) -> tuple[KernelKey, tuple[str, ...]]:
    choice = KernelProfile(PROFILE, HARDWARE).candidates("decode_attention", wanted)[0]
    return choice.fit.key, choice.substitutions


def test_the_kernel_that_was_measured_is_taken() -> None:
    key, substitutions = chosen(Wanted(engine="vllm", kv_format="fp8", head_dim=128, heads="gqa", window="full"))
    assert (key.engine, key.kv_format, key.head_dim) == ("vllm", "fp8", 128)
    assert substitutions == ()


def test_the_nearest_head_width_of_the_same_engine_stands_in_and_says_so() -> None:
    key, substitutions = chosen(Wanted(engine="vllm", kv_format="bf16", head_dim=256, heads="gqa", window="full"))
    assert (key.engine, key.head_dim) == ("vllm", 128)
    assert substitutions == ("head dim 128 measured, 256 wanted",)


def test_another_engine_stands_in_where_there_is_none() -> None:
    key, substitutions = chosen(Wanted(engine="trtllm", kv_format="bf16", head_dim=256))
    assert key.head_dim == 256
    assert substitutions == ("engine sglang measured, trtllm wanted",)


def test_the_format_of_weights_must_be_right() -> None:
    profile = KernelProfile(PROFILE, HARDWARE)
    assert profile.candidates("gemm", Wanted(format="bf16"))
    assert profile.candidates("gemm", Wanted(format="nvfp4")) == ()
    assert profile.candidates("mla_decode", Wanted()) == ()


def test_links_of_another_kind_carry_no_collectives() -> None:
    source = load_profile("h100-sxm-80gb")
    pcie = replace(source.hardware, link=32e9, link_kind="pcie")
    wanted = Wanted(collective="all_reduce", gpus=8)
    assert KernelProfile(source, source.hardware).candidates("collective", wanted)
    assert KernelProfile(source, pcie, "same_architecture").candidates("collective", wanted) == ()


@pytest.mark.parametrize(
    ("heads", "kv_heads", "group"), [(32, 32, "mha"), (32, 8, "gqa"), (16, 1, "gqa"), (64, 2, "mqa")]
)
def test_head_groups(heads: int, kv_heads: int, group: str) -> None:
    assert head_group(heads, kv_heads) == group


@pytest.mark.parametrize(
    ("gpu", "source", "carried"),
    [
        ("h100", "h100-sxm-80gb", None),
        ("h100-pcie-80gb", "h100-sxm-80gb", "same_architecture"),
        ("h20-96gb", "h100-sxm-80gb", "same_architecture"),
        ("gh200-144gb", "h200-sxm-141gb", "same_architecture"),
        ("rtx-5090", "rtx-pro-6000-server", "same_architecture"),
        ("rtx-4090", "l40s", "same_architecture"),
        ("a10", "a100-sxm-80gb", "same_architecture"),
        ("h100-mig-3g.40gb", "h100-sxm-80gb", "same_architecture"),
    ],
)
def test_a_gpu_without_a_profile_takes_its_nearest_relatives(gpu: str, source: str, carried: str | None) -> None:
    spec = load_gpu(gpu)
    found = profile_for(spec)
    assert found is not None
    assert (found.profile.name, found.carried) == (source, carried)
    assert found.hardware.bandwidth == spec.memory.bandwidth


def test_an_older_architecture_is_carried_to_from_beyond_and_an_unmeasured_vendor_not_at_all() -> None:
    older = profile_for(load_gpu("t4"))
    assert older is not None
    assert older.carried == "other_architecture"
    for gpu in ("mi210", "mi250x", "gaudi3", "tpu-v5e", "trainium2", "apple-m4-max-128gb", "arc-pro-b60"):
        assert profile_for(load_gpu(gpu)) is None


def test_the_error_of_carrying_is_that_of_the_relation() -> None:
    near = KernelProfile(PROFILE, HARDWARE, "same_architecture")
    assert near.carried_error("gemm") == Spread(0.07, 0.2, 0.85, 1.2)
    assert near.carried_error("decode_attention") is None
    assert KernelProfile(PROFILE, HARDWARE).carried_error("gemm") is None
    assert KernelProfile(PROFILE, HARDWARE, "other_architecture").carried_error("gemm") is None
