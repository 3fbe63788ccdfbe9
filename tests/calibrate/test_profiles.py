"""From parquet tables made of planted constants to a profile's file, carried to another GPU, and scored."""

from __future__ import annotations

import sys
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from calibrate.accuracy import Reference, read_references, reference_key, rival_laws, scores, slowest_tenth
from calibrate.carrying import Measured, carried_errors
from calibrate.kept import tables_of, with_what_was_there
from calibrate.kernel_fit import fit_group
from calibrate.profiles import import_kernels, main, profile_yaml, rebuild, table_name
from capplan.describe.closed_loop import ClosedLoop, ClosedLoopRow
from capplan.describe.engine_times import EngineTimes, engine_times
from capplan.describe.gpu import Source
from capplan.describe.kernel_constants import CollectiveConstants, DecodeAttentionConstants, GemmConstants
from capplan.describe.profile import Profile, read_profile
from capplan.describe.profile_choice import relation_of
from capplan.describe.profile_table import KINDS, write_table
from capplan.errors import NotFoundError

sys.path.insert(0, str(Path(__file__).parent))
from synthetic import HARDWARE, planted

GEMM = GemmConstants(0.75, 0.85, 4e-6, 6e-6, 0.0)
COLLECTIVE = CollectiveConstants(9e-6, 0.7, 0.6)


def write(root: Path, gpu: str, family: str, engine: str, stem: str, columns: dict[str, Any]) -> None:
    path = root / gpu / family / engine / "1.0" / f"{stem}.parquet"
    path.parent.mkdir(parents=True, exist_ok=True)
    pq.write_table(pa.table(columns), path)


def tables(root: Path, gpu: str = "h100_sxm") -> Path:
    """Tables of one GPU whose GEMMs, NCCL and hopeless prefill are made from planted constants."""
    gemm = planted("gemm", GEMM, noise=0.03)
    n = gemm.points + 1
    sizes = {axis: np.append(gemm.shape[axis], 32).astype(int) for axis in ("m", "n", "k")}
    times = {"latency": np.append(gemm.seconds, 2e-6) * 1e3}
    head = {"kernel_source": ["cublas"] * n, "gemm_dtype": ["bfloat16"] * n}
    write(root, gpu, "gemm", "vllm", "gemm_perf", {**head, **sizes, **times})
    messages = planted("collective", COLLECTIVE, noise=0.02)
    n = messages.points
    write(
        root,
        gpu,
        "comm",
        "nccl",
        "nccl_perf",
        {
            "kernel_source": ["NCCL"] * n,
            "nccl_dtype": ["half"] * n,
            "op_name": ["all_reduce"] * n,
            "num_gpus": [8] * n,
            "message_size": (messages.shape["bytes"] / 2).astype(int),
            "latency": messages.seconds * 1e3,
        },
    )
    n = 150
    write(root, gpu, "attention", "vllm", "context_attention_perf",
          {"kernel_source": ["odd"] * n, "attn_dtype": ["bfloat16"] * n, "kv_cache_dtype": ["bfloat16"] * n,
           "head_dim": [128] * n, "batch_size": [1] * n, "isl": [512] * n, "step": [0] * n,
           "num_heads": [32] * n, "num_key_value_heads": [8] * n,
            "window_size": list(range(1000, 1000 + n)),
           "latency": np.random.default_rng(0).uniform(1.0, 1.1, n)})  # fmt: skip
    return root


def test_tables_become_a_profile_with_the_planted_constants(tmp_path: Path) -> None:
    imported, path = import_kernels(tables(tmp_path / "data"), "h100-sxm", tmp_path / "out", fitted="2026-11-30")
    assert path == tmp_path / "out" / "h100-sxm-80gb.yaml"
    profile = read_profile(path)
    assert (profile.name, profile.fitted, profile.hardware.bandwidth) == ("h100-sxm-80gb", "2026-11-30", 3350e9)
    (gemm,) = profile.fits("gemm")
    assert (gemm.key.engine, gemm.key.kernel, gemm.key.format) == ("vllm", "cublas", "bf16")
    assert gemm.constants.compute_efficiency == pytest.approx(0.75, rel=0.02)  # type: ignore[union-attr]
    assert gemm.constants.launch == pytest.approx(4e-6, rel=0.1)  # type: ignore[union-attr]
    (nccl,) = profile.fits("collective")
    assert nccl.constants.latency == pytest.approx(9e-6, rel=0.05)  # type: ignore[union-attr]
    assert nccl.domain["bytes"] == (512, 2**29)
    assert imported.left_out == {"small_side": 1}
    assert profile.notes is not None
    assert "1 small_side" in profile.notes


def test_what_cannot_be_fitted_is_told_and_not_written(tmp_path: Path) -> None:
    imported, path = import_kernels(tables(tmp_path / "data"), "h100_sxm", tmp_path)
    assert len(imported.refused) == 1
    assert imported.refused[0].startswith("prefill_attention vllm 1.0 odd bf16 bf16 128 window: ")
    assert read_profile(path).fits("prefill_attention") == ()


def test_importing_again_keeps_what_carrying_cost(tmp_path: Path) -> None:
    data = tables(tmp_path / "data")
    for gpu in ("h200_sxm", "a100_sxm"):
        tables(data, gpu)
    built = list(rebuild(data, tmp_path, names=("h100_sxm", "h200_sxm", "a100_sxm")))
    before = read_profile(tmp_path / "h100-sxm-80gb.yaml").carried_errors
    assert {(error.kind, error.relation) for error in before} == {
        ("gemm", "same_architecture"), ("gemm", "other_architecture"),
        ("collective", "same_architecture"), ("collective", "other_architecture"),
    }  # fmt: skip
    import_kernels(data, "h100_sxm", tmp_path)
    assert read_profile(tmp_path / "h100-sxm-80gb.yaml").carried_errors == before
    assert len(built) == 3


LOOP = ClosedLoop(
    date="2026-11-30",
    rows=(
        ClosedLoopRow(
            model="qwen3-0.6b", layers=28, phase="decode", mode="eager", batch=1, prompt=128, new=9, measured=0.01,
            predicted=0.011, low=0.01, high=0.012, noise=0.02,
        ),
    ),
)  # fmt: skip


def measured_here(path: Path, **changes: Any) -> Profile:
    """The file of a profile with torch's kernels, terms, closed loop and provenance added, as a run here leaves it."""
    before = read_profile(path)
    (gemm,) = before.fits("gemm")
    own = replace(gemm, key=replace(gemm.key, engine="torch", kernel="gemm"))
    added = replace(
        before,
        tables=tables_of([*before.all_fits(), own]),
        engine_times={"torch": EngineTimes(kernel_share=1.04, sources={"all": "fitted to 4 phases"})},
        closed_loop=LOOP,
        provenance={"device": "NVIDIA H100 80GB HBM3", "torch": "2.13.0"},
        **changes,
    )
    path.write_text(profile_yaml(added), encoding="utf-8")
    return read_profile(path)


@pytest.mark.parametrize("engine", ["vllm", "sglang", "trtllm", "transformers"])
def test_every_engines_terms_are_written_and_read(engine: str, tmp_path: Path) -> None:
    _, path = import_kernels(tables(tmp_path / "data"), "h100_sxm", tmp_path)
    times = replace(engine_times(engine), fused=("rotary embedding", "norm"), graph_context=None, sources={})
    path.write_text(profile_yaml(replace(read_profile(path), engine_times={engine: times})), encoding="utf-8")
    found = vars(read_profile(path).engine_times[engine])
    assert {name: value for name, value in found.items() if not isinstance(value, float)} == {
        name: value for name, value in vars(times).items() if not isinstance(value, float)
    }
    for name, value in vars(times).items():
        if isinstance(value, float):
            assert found[name] == pytest.approx(value, rel=1e-5)


def test_importing_into_a_measured_profile_keeps_what_was_measured(tmp_path: Path) -> None:
    data = tables(tmp_path / "data")
    _, path = import_kernels(data, "h100_sxm", tmp_path)
    before = measured_here(path)
    imported, _ = import_kernels(data, "h100_sxm", tmp_path)
    after = read_profile(path)
    assert after == replace(before, fitted=after.fitted)
    assert {fit.key.engine for fit in after.fits("gemm")} == {"vllm", "torch"}
    assert not any("torch" in text for text in imported.refused)


def test_constants_that_are_shares_of_other_figures_are_dropped_and_told(tmp_path: Path) -> None:
    data = tables(tmp_path / "data")
    _, path = import_kernels(data, "h100_sxm", tmp_path)
    hardware = read_profile(path).hardware
    measured_here(path, hardware=replace(hardware, overlap=1.5))
    imported, _ = import_kernels(data, "h100_sxm", tmp_path)
    after = read_profile(path)
    assert {fit.key.engine for fit in after.fits("gemm")} == {"vllm"}
    assert after.closed_loop is None
    assert after.engine_times["torch"].kernel_share == 1.04
    assert any("the kernels of torch that h100-sxm-80gb.yaml had" in text for text in imported.refused)


def test_measuring_again_replaces_torchs_part_alone(tmp_path: Path) -> None:
    _, path = import_kernels(tables(tmp_path / "data"), "h100_sxm", tmp_path)
    before = measured_here(path)
    (own,) = (fit for fit in before.fits("gemm") if fit.key.engine == "torch")
    fresh = replace(
        before,
        tables=tables_of([replace(own, points=99)]),
        engine_times={},
        closed_loop=None,
        provenance={"torch": "3"},
    )
    found, lost = with_what_was_there(fresh, path)
    assert lost == ""
    assert {(fit.key.engine, fit.points == 99) for fit in found.fits("gemm")} == {("vllm", False), ("torch", True)}
    assert (found.closed_loop, found.provenance) == (None, {"torch": "3"})
    assert with_what_was_there(fresh, tmp_path / "absent.yaml") == (fresh, "")


def test_the_command_rebuilds_one_profile(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    arguments = [str(tables(tmp_path / "data")), "--out", str(tmp_path), "--gpu", "h100_sxm", "--date", "2026-01-02"]
    assert main(arguments) == 0
    assert read_profile(tmp_path / "h100-sxm-80gb.yaml").fitted == "2026-01-02"
    assert "h100-sxm-80gb: rows left out: 1 small_side; not fitted" in capsys.readouterr().err


def test_gpus_go_by_the_tables_name_or_the_catalogs(tmp_path: Path) -> None:
    data = tables(tmp_path)
    assert table_name(data, "h100-sxm") == table_name(data, "h100") == table_name(data, "H100_SXM") == "h100_sxm"
    with pytest.raises(NotFoundError):
        import_kernels(data, "b200", tmp_path)
    with pytest.raises(NotFoundError):
        table_name(data, "h1000")


def test_a_profile_without_tables_or_links_is_valid_yaml(tmp_path: Path) -> None:
    bare = Profile(
        name="bare", title='A "bare" one', fitted="2026-11-30", source=Source(source="nowhere", date="2026-11-30"),
        hardware=replace(HARDWARE, link=None, link_kind=None, compute_capability=None), tables={},
    )  # fmt: skip
    path = tmp_path / "bare.yaml"
    path.write_text(profile_yaml(bare))
    assert read_profile(path) == bare


# --- carrying ----------------------------------------------------------------------------------------------------

DECODE = DecodeAttentionConstants(0.8, 11e-6, 0.0, 4e-6)


def measured(name: str, architecture: Any, speed: float, kind: Any = "gemm", constants: Any = GEMM) -> Measured:
    """A GPU of `speed` times the figures, whose kernels have the planted constants on its own figures."""
    group = planted(kind, constants, noise=0.02)
    hardware = replace(
        HARDWARE, architecture=architecture, compute_capability="9.0" if architecture == "hopper" else "8.0"
    )
    fit = fit_group(group, HARDWARE)
    profile = Profile(
        name=name, title=name, fitted="2026-11-30", source=Source(source="nowhere", date="2026-11-30"),
        hardware=hardware, tables={kind: write_table(KINDS[kind], [fit])},
    )  # fmt: skip
    return Measured(profile, (replace(group, seconds=group.seconds * speed),))


def test_like_gpus_carry_without_loss_and_a_slower_one_shows_it() -> None:
    source = measured("one", "hopper", 1.0)
    others = [measured("two", "hopper", 1.0), measured("three", "ampere", 1.5), source]
    errors = {error.relation: error for error in carried_errors(source.profile, others)}
    assert errors["same_architecture"].tried_on == ("two",)
    assert errors["same_architecture"].median < 0.03
    assert errors["other_architecture"].tried_on == ("three",)
    assert errors["other_architecture"].median == pytest.approx(1 - 1 / 1.5, rel=0.1)
    assert errors["other_architecture"].low == pytest.approx(1.5, rel=0.1)


def test_what_a_profile_lacks_is_not_carried() -> None:
    source = measured("one", "hopper", 1.0)
    decode = measured("two", "hopper", 1.0, "decode_attention", DECODE)
    assert carried_errors(source.profile, [decode]) == ()


def test_blackwell_is_two_architectures_and_its_ultra_is_the_same() -> None:
    centre = replace(HARDWARE, architecture="blackwell", compute_capability="10.0")
    ultra = replace(HARDWARE, architecture="blackwell_ultra", compute_capability="10.3")
    workstation = replace(HARDWARE, architecture="blackwell", compute_capability="12.0")
    assert relation_of(centre, ultra) == "same_architecture"
    assert relation_of(centre, workstation) == "other_architecture"


# --- scores ------------------------------------------------------------------------------------------------------


def test_scores_stand_beside_their_reference() -> None:
    group = planted("gemm", GEMM, noise=0.05)
    fit = fit_group(group, HARDWARE)
    references = {
        reference_key("gemm", "h100_sxm", group): Reference(0.02, 0.1, "1.0", True),
        reference_key("gemm_from_few_points", "h100_sxm", group): Reference(0.05, 0.2, "1.0", False),
    }
    ours, rival = scores("h100_sxm", [group], [fit], HARDWARE, references)
    assert (ours.law, rival.law) == ("gemm", "gemm_from_few_points")
    assert ours.ratio == pytest.approx(ours.half_median / 0.02)
    assert rival.ratio is None  # an unphysical reference is not compared
    assert rival.half_median > ours.half_median
    assert rival.unseen_median is None


def test_the_slowest_tenth_of_a_law_without_surprises_is_as_good_as_the_rest() -> None:
    group = planted("decode_attention", DECODE, noise=0.05)
    worst = slowest_tenth(group, HARDWARE, fit_group(group, HARDWARE).constants)
    assert worst is not None
    assert worst < 0.2
    bent = np.where(group.seconds > np.quantile(group.seconds, 0.9), 2 * group.seconds, group.seconds)
    worst = slowest_tenth(replace(group, seconds=bent), HARDWARE, DECODE)
    assert worst == pytest.approx(0.5, abs=0.1)


def test_the_references_cover_every_law_and_gpu() -> None:
    references = read_references(Path(__file__).parents[2] / "benchmarks" / "data" / "kernel_reference.csv")
    laws = {key[0] for key in references}
    rivals = {name for kind in KINDS for name in rival_laws(kind)}
    assert laws == {kind for kind in KINDS if kind not in ("rows", "recurrence")} | rivals
    assert len({key[1] for key in references}) == 9
    assert all(0 < reference.median < 1 for reference in references.values())
