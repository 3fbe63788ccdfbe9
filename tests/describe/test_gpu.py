"""The shipped accelerators against the collected table, read here on its own, and against their own physics."""

from __future__ import annotations

import csv
import subprocess
import sys
from dataclasses import asdict
from decimal import Decimal
from pathlib import Path
from typing import Any

import pytest

from capplan.describe.catalog import find_entry, list_entries, normalise_name
from capplan.describe.gpu import GpuSpec, split_mig_name
from capplan.describe.gpu_catalog import ad_hoc_gpu, list_gpus, load_gpu, parse_rates, read_gpu, validate_gpus
from capplan.describe.yaml_file import read_yaml, validate
from capplan.errors import CapplanError, InvalidFileError, NotFoundError, UsageError

SOURCE = Path(__file__).resolve().parents[2] / "hardware" / "source"
RATES = (
    "fp32_tflops",
    "tf32_tflops",
    "fp16_tflops",
    "bf16_tflops",
    "fp8_tflops",
    "int8_tops",
    "fp4_tflops",
    "int4_tops",
)

with (SOURCE / "accelerators.csv").open(newline="", encoding="utf-8") as file:
    ROWS = list(csv.DictReader(file))


def expected(cell: str, scale: int = 1) -> float | None:
    """A cell of the table in base units, through decimals; None where it is empty."""
    return float(Decimal(cell) * scale) if cell else None


def test_the_table_is_whole() -> None:
    assert len(ROWS) == 63
    assert len(list_entries("hardware")) == 63


@pytest.mark.parametrize("row", ROWS, ids=lambda row: row["name"])
def test_every_row_of_the_table(row: dict[str, str]) -> None:
    spec = load_gpu(row["name"])
    assert (spec.title, spec.vendor) == (row["name"], row["vendor"])
    assert spec.memory.label_gb == expected(row["memory_gb"])
    assert spec.memory.usable_mib == expected(row["usable_mib"])
    assert spec.memory.type == row["mem_type"]
    assert spec.memory.bandwidth == expected(row["mem_bw_gbs"], 10**9)
    for column in RATES:
        assert spec.dense_rate(column.partition("_")[0]) == expected(row[column], 10**12), column
    assert spec.l2_mib == expected(row["l2_mb"])
    assert spec.compute_units == expected(row["sm_or_cu_count"])
    assert spec.boost_mhz == expected(row["boost_mhz"])
    assert spec.tdp_w == expected(row["tdp_w"])
    assert spec.release_year == int(row["release_year"])
    assert spec.confidence == row["confidence"]
    assert spec.halved_from_sparse == row["halved_from_sparse"]
    assert (spec.notes or "") == row["conflicts_notes"]
    if row["link_gbs_per_dir"]:
        assert spec.link is not None
        assert spec.link.kind == row["interconnect"]
        assert spec.link.per_direction == expected(row["link_gbs_per_dir"], 10**9)
        assert spec.link.total == expected(row["link_gbs_total"], 10**9)
    else:
        assert spec.link is None
    if row["pcie_gen"]:
        assert spec.pcie is not None
        assert (spec.pcie.generation, spec.pcie.per_direction) == (
            int(row["pcie_gen"]),
            expected(row["pcie_gbs_per_dir"], 10**9),
        )
    else:
        assert spec.pcie is None
    assert spec.sources["all"].source == row["source"]
    assert spec.sources["all"].date == "2026-11-29"


@pytest.mark.parametrize("path", list_entries("hardware"), ids=lambda path: path.stem)
def test_every_entry_is_valid_and_complete(path: Path) -> None:
    document = read_yaml(path)
    spec = validate(GpuSpec, document)
    assert read_gpu(path) == spec
    assert list(document.data)[:2] == ["schema", "name"]
    assert spec.name == path.stem
    assert spec.vendor == "NVIDIA" or spec.compute_capability is None
    assert spec.vendor != "NVIDIA" or (spec.compute_capability and spec.device_names)
    if spec.confidence == "low":
        assert spec.doubtful, "a low confidence names the figures that are meant"
    if spec.memory.cuda_visible_mib:
        assert "memory.cuda_visible_mib" in spec.sources
    assert spec.source_of("memory.bandwidth") == spec.sources["all"]


@pytest.mark.parametrize("path", list_entries("hardware"), ids=lambda path: path.stem)
def test_a_description_round_trips(path: Path, tmp_path: Path) -> None:
    import json

    spec = read_gpu(path)
    data = {key: value for key, value in asdict(spec).items() if value is not None}
    copy = tmp_path / path.name
    copy.write_text(json.dumps(data, default=list), encoding="utf-8")  # JSON is YAML
    assert read_gpu(copy) == spec


def test_the_committed_entries_are_what_the_script_writes() -> None:
    run = subprocess.run(
        [sys.executable, str(SOURCE / "write_entries.py"), "--check"],
        capture_output=True,
        text=True,
        check=False,
        env={"PYTHONPATH": str(SOURCE.parents[1]), "PATH": ""},
    )
    assert run.returncode == 0, run.stdout + run.stderr


def test_no_two_entries_share_a_name() -> None:
    owners: dict[str, str] = {}
    for path in list_entries("hardware"):
        spec = read_gpu(path)
        for name in {normalise_name(n) for n in (spec.name, spec.title, *spec.aliases)}:
            assert owners.setdefault(name, spec.name) == spec.name, name
    devices = [name for path in list_entries("hardware") for name in read_gpu(path).device_names]
    assert len(devices) == len(set(devices))


# Dense 16-bit tensor rates from the silicon: SMs x FLOP per clock and SM x clock. FLOP per clock: NVIDIA's V100,
# T4, A100 and H100 white papers (1024, 1024, 2048, 4096), AMD's CDNA3 white paper (2048 per CU), Ada (1024).
@pytest.mark.parametrize(
    ("name", "units", "per_clock", "mhz", "tolerance"),
    [
        ("a100", 108, 2048, 1410, 0.001),
        ("a100-pcie-40gb", 108, 2048, 1410, 0.001),
        ("h100", 132, 4096, 1830, 0.0005),
        ("h200", 132, 4096, 1830, 0.0005),
        ("h100-pcie", 114, 4096, 1620, 0.002),
        ("h100-nvl", 132, 4096, 1545, 0.001),
        ("v100", 80, 1024, 1530, 0.005),
        ("t4", 40, 1024, 1590, 0.005),
        ("mi300x", 304, 2048, 2100, 0.005),
        ("l40s", 142, 1024, 2520, 0.0125),
    ],
)
def test_dense_rates_follow_from_the_silicon(name: str, units: int, per_clock: int, mhz: int, tolerance: float) -> None:
    spec = load_gpu(name)
    assert spec.compute_units == units
    assert spec.dense_rate("fp16") == pytest.approx(units * per_clock * mhz * 1e6, rel=tolerance)


def test_no_rate_is_a_sparse_one() -> None:
    # On tensor cores of one generation half the width is at most twice the rate; int8 is cut on Blackwell Ultra.
    for path in list_entries("hardware"):
        spec = read_gpu(path)
        bf16, fp8, fp4 = (spec.dense_rate(name) for name in ("bf16", "fp8", "fp4"))
        if bf16 and fp8:
            assert fp8 <= 4.01 * bf16
            assert (
                spec.vendor not in ("NVIDIA", "AMD") or spec.name == "dgx-spark-gb10" or fp8 <= 2.03 * bf16
            )  # L40S: 733 to 362 on the sheet
        if fp8 and fp4:
            assert fp4 <= 4.01 * fp8


# Formats that the hardware does not have. Source: NVIDIA's architecture white papers.
@pytest.mark.parametrize(
    ("name", "missing"),
    [
        ("a100", "fp8"),
        ("v100", "fp8"),
        ("v100", "bf16"),
        ("t4", "fp8"),
        ("t4", "bf16"),
        ("h100", "fp4"),
        ("mi300x", "fp4"),
    ],
)
def test_formats_that_are_not_there_have_no_rate(name: str, missing: str) -> None:
    assert load_gpu(name).dense_rate(missing) is None


# What engines printed as the device's total, GiB (public logs); within the spread between driver versions.
@pytest.mark.parametrize(
    ("name", "gib", "spread"),
    [
        ("rtx-3090", 23.58, 0.005),
        ("rtx-4090", 23.65, 0.005),
        ("rtx-5090", 31.37, 0.005),
        ("a100", 79.25, 0.1),
        ("a100-40gb", 39.38, 0.15),
        ("h100", 79.18, 0.08),
        ("h200", 139.80, 0.01),
        ("b200", 178.35, 0.01),
        ("b300", 267.69, 0.005),
        ("gb200", 184.31, 0.005),
        ("l40s", 44.39, 0.005),
        ("mi300x", 191.98, 0.01),
        ("mi355x", 287.98, 0.01),
    ],
)
def test_memory_is_what_the_engine_sees(name: str, gib: float, spread: float) -> None:
    spec = load_gpu(name)
    assert spec.memory.engine_bytes_basis == "cuda_visible_mib"
    assert spec.engine_memory / 2**30 == pytest.approx(gib, abs=spread)


def test_memory_without_a_measurement_falls_back_and_says_so() -> None:
    assert load_gpu("h200-nvl").memory.engine_bytes_basis == "usable_mib"
    tpu = load_gpu("tpu-v5p")
    assert (tpu.memory.engine_bytes_basis, tpu.engine_memory) == ("label_gb", 95 << 30)


@pytest.mark.parametrize(
    ("text", "parts"),
    [
        ("h100", ("h100", None)),
        ("h100-mig-1g.10gb", ("h100", "1g.10gb")),
        ("H100_SXM_80GB_MIG_3g.40gb", ("H100_SXM_80GB", "3g.40gb")),
        ("h200:2g.35gb", ("h200", "2g.35gb")),
        ("a100-sxm-80gb-1g-10gb", ("a100-sxm-80gb", "1g-10gb")),
        ("NVIDIA A100 80GB PCIe MIG 1g.10gb", ("NVIDIA A100 80GB PCIe", "1g.10gb")),
        ("mi300x", ("mi300x", None)),
    ],
)
def test_mig_names(text: str, parts: tuple[str, str | None]) -> None:
    assert split_mig_name(text) == parts


def test_mig_slices_are_devices() -> None:
    whole, part = load_gpu("a100-pcie"), load_gpu("a100-pcie-mig-1g.10gb")
    # torch on "NVIDIA A100 80GB PCIe MIG 1g.10gb": total_memory=9728MB, multi_processor_count=14
    assert (part.engine_memory, part.compute_units) == (9728 << 20, 14)
    assert part.device_names == ("NVIDIA A100 80GB PCIe MIG 1g.10gb",)
    assert part.memory.bandwidth == whole.memory.bandwidth / 8
    assert part.dense_rate("bf16") == pytest.approx(312e12 * 14 / 108)
    assert part.link is None


def test_slices_never_exceed_their_gpu() -> None:
    seen = 0
    for path in list_entries("hardware"):
        spec = read_gpu(path)
        for mig in spec.mig:
            seen += 1
            part = spec.mig_device(mig.profile)
            assert load_gpu(f"{spec.name}-mig-{mig.profile}") == part
            assert part.name == f"{spec.name}-mig-{mig.profile}"
            assert mig.most * mig.sms <= (spec.compute_units or 0)
            assert mig.most * mig.memory_slices <= 8
            assert mig.most * mig.usable_mib <= (spec.memory.usable_mib or 0)
            assert 0.85 < part.engine_memory / (mig.memory_slices / 8 * spec.engine_memory) < 1.01
    assert seen == 7 * 6
    assert len(list_gpus(mig=True)) == 63 + 42


def test_unknown_slices_name_the_known() -> None:
    with pytest.raises(NotFoundError) as caught:
        load_gpu("h100-mig-1g.11gb")
    assert "1g.10gb" in caught.value.hint
    with pytest.raises(NotFoundError, match="no MIG profiles"):
        load_gpu("l4-mig-1g.10gb")


def minimal(**changes: Any) -> str:
    data: dict[str, Any] = {
        "schema": 1, "name": "my-gpu", "title": "My GPU", "vendor": "other", "architecture": "other",
        "memory": {"label_gb": 24, "type": "GDDR", "bandwidth": "1e12"}, "dense_rates": {"bf16": "165e12"},
    } | changes  # fmt: skip
    lines = []
    for key, value in data.items():
        nested = isinstance(value, dict)
        lines += [f"{key}:", *(f"  {k}: {v}" for k, v in value.items())] if nested else [f"{key}: {value}"]
    return "\n".join(lines) + "\n"


@pytest.mark.parametrize(
    ("text", "line_column", "message", "hint"),
    [
        (minimal(vendour="x"), "12:10", "unknown key 'vendour'", "vendor"),
        (
            minimal(memory={"label_gb": 24, "type": "G", "bandwith": "1e12"}),
            "9:13",
            "unknown key 'bandwith'",
            "bandwidth",
        ),
        (minimal(memory={"label_gb": 24, "type": "G"}), "7:3", "'memory.bandwidth' is missing", ""),
        (minimal(memory={"label_gb": -1, "type": "G", "bandwidth": 1}), "7:13", "greater than 0", ""),
        (minimal(memory={"label_gb": "yes", "type": "G", "bandwidth": 1}), "7:13", "valid number", ""),
        (minimal(memory={"label_gb": True, "type": "G", "bandwidth": 1}), "7:13", "valid number", ""),
        (
            minimal(memory={"label_gb": 24, "usable_mib": 99999, "type": "G", "bandwidth": 1}),
            "7:3",
            "does not go with",
            "",
        ),
        (minimal(memory={"label_gb": 24, "type": "G", "bandwidth": "1e25"}), "9:14", "less than or equal", ""),
        (minimal(dense_rates={"fp99": "1e12"}), "11:9", "fp32", ""),
        (minimal(compute_units=1.5), "12:16", "integer", ""),
        (minimal(name="My GPU"), "2:7", "pattern", ""),
        (minimal(name="../../etc/passwd"), "2:7", "pattern", ""),
        (minimal(schema=2), "1:9", "1", ""),
        (minimal(doubtful={"tdpw": "who knows"}), "1:1", "'tdpw' is not a field", ""),
        (minimal(confidence="certain"), "12:13", "high", ""),
        (minimal() + "name: other\n", "12:1", "twice", ""),
        (minimal() + "l2_mib: .nan\n", "12:9", "not a usable number", ""),
        ("schema: 1\nname: [\n", "3:1", "YAML", ""),
        ("- schema: 1\n", "1:1", "mapping", ""),
    ],
)
def test_a_bad_file_is_told_with_its_place(
    tmp_path: Path, text: str, line_column: str, message: str, hint: str
) -> None:
    path = tmp_path / "bad.yaml"
    path.write_text(text, encoding="utf-8")
    with pytest.raises(InvalidFileError) as caught:
        read_gpu(path)
    assert caught.value.where == f"{path}:{line_column}"
    assert message in caught.value.message
    assert hint in caught.value.hint
    checked = validate_gpus([path])[0]
    assert checked.name is None
    assert checked.problem == caught.value.as_dict()


def test_a_good_file_of_the_users(tmp_path: Path) -> None:
    path = tmp_path / "mine.yaml"
    path.write_text(minimal(), encoding="utf-8")
    assert load_gpu(str(path)).dense_rate("bf16") == 165e12
    assert validate_gpus([path])[0].name == "my-gpu"
    with pytest.raises(NotFoundError):
        load_gpu(str(tmp_path / "other.yaml"))


def test_ad_hoc_devices() -> None:
    spec = ad_hoc_gpu("24GiB", "1008GB/s", "165")
    assert (spec.engine_memory, spec.memory.bandwidth) == (24 << 30, 1.008e12)
    assert spec.dense_rates == {"fp16": 165e12, "bf16": 165e12}
    assert ad_hoc_gpu("80GB", "2TB/s", "bf16=312,int8=624TOPS").dense_rates == {"bf16": 312e12, "int8": 624e12}
    base = load_gpu("rtx-4090")
    changed = ad_hoc_gpu("48GiB", None, "fp8=660", base=base)
    assert (changed.engine_memory, changed.memory.bandwidth) == (48 << 30, base.memory.bandwidth)
    assert changed.dense_rates == base.dense_rates | {"fp8": 660e12}


@pytest.mark.parametrize(
    "flags",
    [
        (None, "1TB/s", "165"),
        ("24GiB", None, None),
        ("0", "1TB/s", "165"),
        ("nan", "1TB/s", "165"),
        ("24GiB", "-1TB/s", "165"),
        ("24GiB", "1TB/s", "fp9=1"),
        ("24GiB", "1TB/s", "165,330"),
        ("24GiB", "1TB/s", "bf16=,fp8=1"),
        ("24GiB", "1TB/s", ""),
        ("9999EiB", "1TB/s", "1"),
    ],
)
def test_bad_ad_hoc_devices(flags: tuple[str | None, str | None, str | None]) -> None:
    with pytest.raises(UsageError) as caught:
        ad_hoc_gpu(*flags)
    assert caught.value.where in ("--gpu", "--gpu-memory", "--memory-bandwidth", "--tflops")


def test_near_names_are_suggested() -> None:
    with pytest.raises(NotFoundError) as caught:
        load_gpu("rtx-4900")
    assert "rtx-4090" in caught.value.hint
    assert caught.value.exit_code == 3


@pytest.mark.parametrize(
    "name", ["", " ", "\x00", "a" * 300, "../../etc/passwd", "/etc/passwd", "..", "h100\n", "mig-1g.10gb"]
)
def test_odd_names_find_nothing(name: str) -> None:
    try:
        spec = load_gpu(name)
    except CapplanError:
        return
    assert find_entry("hardware", spec.name)


def test_rates_by_format_need_a_known_format() -> None:
    with pytest.raises(UsageError) as caught:
        parse_rates("bf61=100")
    assert "bf16" in caught.value.hint
