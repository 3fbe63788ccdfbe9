"""``capplan calibrate`` on the command line: what needs torch says so, the rest answers without."""

from __future__ import annotations

import importlib.util
import json
import sys
from pathlib import Path
from typing import Any

import jsonschema
import pytest

from capplan.cli.app import run
from capplan.report.schemas import RESULTS, command_schema

ROOT = Path(__file__).parents[2]
sys.path.insert(0, str(ROOT / "tests" / "calibrate"))
from samples_made import recording as made  # noqa: E402

HAS_TORCH = importlib.util.find_spec("torch") is not None


def _schema(command: str) -> Any:
    return json.loads((ROOT / "docs" / "schemas" / f"{command.replace(' ', '-')}.json").read_text(encoding="utf-8"))


@pytest.fixture
def samples(tmp_path: Path) -> Path:
    from calibrate.samples import recording

    path = tmp_path / "made.samples.jsonl"
    found = made("gemm", "norm")
    with recording(path, found.provenance, found.settings, resume=False) as recorder:
        for sample in found.samples:
            recorder.add(sample)
    return path


@pytest.mark.parametrize("command", [name for name in RESULTS if name.startswith("calibrate ")])
def test_the_committed_schema_is_that_of_the_code(command: str) -> None:
    assert command_schema(command) == _schema(command), "run: python tools/schemas.py"


def test_a_fit_answers_the_same_every_time_and_by_its_schema(
    samples: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr("calibrate.sample_fit.BOOTSTRAPS", 3)
    texts = []
    for _ in range(2):
        assert run(["calibrate", "fit", str(samples), "--json"]) == 0
        texts.append(capsys.readouterr().out)
    assert texts[0] == texts[1]
    document = json.loads(texts[0])
    jsonschema.validate(document, _schema("calibrate fit"))
    assert [one["kernel"] for one in document["result"]["kernels"]] == ["gemm bf16", "norm"]
    assert document["result"]["check"] is None
    assert (samples.parent / "made.yaml").is_file()
    assert (samples.parent / "made.report.html").is_file()
    assert run(["calibrate", "fit", str(samples)]) == 0
    assert "not checked" in capsys.readouterr().out


@pytest.mark.parametrize(
    ("argv", "code", "said"),
    [
        (["calibrate", "fit", "no.jsonl"], 3, "no.jsonl"),
        (["calibrate", "fit"], 2, "samples"),
        (["calibrate", "run", "--minutes", "-1"], 2, "--minutes"),
        (["calibrate", "run", "--minutes", "nan"], 2, "2, 0.5 or 90s"),
        (["calibrate", "run", "--minutes", "0"], 2, "too short a time"),
        (["calibrate", "run", "--threads", "0"], 2, "--threads"),
        (["calibrate", "--points", "x"], 2, "--points"),
        (["calibrate", "run", "--mode", "graph"], 2, "graphs"),
        (["calibrate", "endpoint", "http://127.0.0.1:9", "--model", "m"], 2, "--concurrency"),
        (["calibrate", "endpoint", "http://127.0.0.1:9", "--model", "m", "--concurrency", "1"], 3, "no server"),
        (["calibrate", "endpoint", "x", "--model", "m", "--request-rate", "fast"], 2, "--request-rate"),
        (["calibrate", "import", "no.json", "--gpu", "h100"], 3, "no.json"),
        (["calibrate", "import-kernels", "/nowhere", "--gpu", "h100"], 3, "/nowhere"),
        (["calibrate", "phases", "--model", "qwen3-0.6b", "--runner", "vllm"], 2, "--runner"),
        (["calibrate", "phases", "--model", "qwen3-0.6b", "--osl", "1"], 2, "--osl"),
        (["calibrate", "frobnicate"], 2, "frobnicate"),
    ],
)
def test_mistakes_have_one_block_and_their_exit_code(
    argv: list[str], code: int, said: str, capsys: pytest.CaptureFixture[str]
) -> None:
    assert run(argv) == code
    out, err = capsys.readouterr()
    assert out == ""
    assert "error: " in err
    assert said in err
    assert "Traceback" not in err


@pytest.mark.parametrize(
    "argv",
    [["calibrate"], ["calibrate", "run"], ["calibrate", "check", "x.yaml"], ["calibrate", "phases", "--model", "x"]],
)
def test_without_torch_the_extra_is_named(
    argv: list[str], monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    real = importlib.util.find_spec
    monkeypatch.setattr(
        "calibrate.torch_needed.find_spec", lambda name, *rest: None if name == "torch" else real(name, *rest)
    )
    assert run(argv) == 3
    assert "pip install 'capplan[calibrate]'" in capsys.readouterr().err


def test_without_scipy_the_extra_is_named(
    samples: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr("calibrate.torch_needed.find_spec", lambda name, *rest: None)
    assert run(["calibrate", "fit", str(samples)]) == 3
    assert "pip install 'capplan[calibrate]'" in capsys.readouterr().err


def test_help_needs_neither(capsys: pytest.CaptureFixture[str]) -> None:
    assert run(["calibrate", "--help"]) == 0
    out = capsys.readouterr().out
    for command in ("run", "fit", "check", "phases", "endpoint", "import", "import-kernels"):
        assert command in out


@pytest.mark.skipif(not HAS_TORCH, reason="needs torch")
def test_phases_of_a_model_come_out_of_one_command(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    model = tmp_path / "tiny.yaml"
    model.write_text(
        "schema: 1\nname: tiny\nhidden_size: 64\nblocks:\n  a:\n"
        "    mixer: {kind: attention, heads: 4, kv_heads: 2, head_dim: 16}\n"
        "    ffn: {kind: dense, intermediate_size: 96}\n"
        'layers: "2*a"\nembedding: {vocab_size: 300}\n'
    )
    argv = ["calibrate", "phases", "--model", str(model), "--isl", "16", "--osl", "3", "--device", "cpu"]
    assert run([*argv, "--json"]) == 0
    document = json.loads(capsys.readouterr().out)
    jsonschema.validate(document, _schema("calibrate phases"))
    result = document["result"]
    assert result["cache_bytes"] == result["expected_cache_bytes"] == 2 * 2 * 18 * 2 * 16 * 2
    total = result["median_ttft_ms"] + 2 * result["median_tpot_ms"]
    assert result["output_throughput"] == pytest.approx(3 / total * 1e3)
    assert run(argv) == 0
    assert "(equal)" in capsys.readouterr().out
