"""The interface's contracts: exit codes, JSON, errors, streams, colours, the short way through."""

from __future__ import annotations

import csv
import inspect
import json
import os
import re
import subprocess
import sys
from importlib.util import find_spec
from pathlib import Path
from typing import Any

import jsonschema
import pytest
import typer

from capplan.cli import kv as kv_module
from capplan.cli import roofline as roofline_module
from capplan.cli import step as step_module
from capplan.cli import weights as weights_module
from capplan.cli.app import COMMANDS, run
from capplan.cli.quick import quick, spelled
from capplan.report import tables
from capplan.report.schemas import RESULTS, command_schema
from capplan.report.tables import Table

ROOT = Path(__file__).parents[2]
CONFIG = str(ROOT / "tests" / "data" / "model_truth" / "configs" / "google--gemma-2-2b.json")
LOG = str(ROOT / "tests" / "data" / "logs" / "vllm-llama-3.1-8b.log")
SERVERS = str(ROOT / "tests" / "data" / "measured" / "servers.csv")
ENCODER = str(ROOT / "tests" / "data" / "model_truth" / "configs" / "FacebookAI--xlm-roberta-large.json")
AD_HOC = ["--gpu-memory", "24GiB", "--memory-bandwidth", "1008GB/s", "--tflops", "165"]
UNIFORM = ["kv", "--layers", "32", "--kv-heads", "8", "--head-dim", "128"]

words = str.split

ANSWERED = {
    "kv": [["kv", "--model", CONFIG, "--seq", "8k"], [*UNIFORM, "--seq", "8k,64k"]],
    "weights": [["weights", "--model", CONFIG], ["weights", "--params", "35e9", "--bits", "4"]],
    "fit": [
        ["fit", "--model", CONFIG, "--gpu", "l4", "--max-model-len", "8k"],
        ["fit", "--model", CONFIG, "--gpu", "t4", "--max-model-len", "8k", "--memory-in-use", "12GiB"],
        [
            "fit",
            "--model",
            "llama2-7b",
            "--gpu",
            "rtx-4090",
            "--engine",
            "llama.cpp",
            "-ngl",
            "8",
            "--weight-dtype",
            "gguf:Q4_0",
        ],
    ],
    "import-log": [
        ["import-log", LOG, "--model", "llama3.1-8b"],
        ["import-log", LOG, "--model", CONFIG, "--gpu", "l4"],
    ],
    "roofline": [
        ["roofline", "--model", CONFIG, "--gpu", "h100", "--batch", "1,64"],
        ["roofline", "--model", ENCODER, "--gpu", "mi300x"],
    ],
    "step": [
        ["step", "--model", CONFIG, "--gpu", "h200", "--decode", "64@4096", "--prefill", "2048@1k,512", "-tp", "2"],
        ["step", "--model", "deepseek-v3", "--gpu", "h200", "-tp", "8", "-ep", "--decode", "64@4096"],
    ],
    "prefill": [
        ["prefill", "--model", CONFIG, "--gpu", "h100", "--isl", "20k", "--prefix", "100"],
        ["prefill", "--model", ENCODER, "--gpu", "l4", "--isl", "512"],
    ],
    "decode": [
        ["decode", "--model", CONFIG, "--gpu", "h100", "--context", "4096", "--batch", "8"],
        ["decode", "--model", CONFIG, *AD_HOC, "--context", "4k"],
    ],
    "simulate": [
        words("simulate --model llama3.1-8b --gpu h100 --isl 500-900 --osl 50 --concurrency 8 --requests 40"),
        words("simulate --model llama3.1-8b --gpu h100 --isl 1k --osl 20 --rate 9 --requests 40 --ttft 1s --seed 3"),
    ],
    "estimate": [
        words("estimate --model llama3.1-8b --gpu h100 --isl 1000 --osl 200 --concurrency 16"),
        words("estimate --model llama3.1-8b --gpu rtx-4090 --isl 1k --osl 200 --request-rate 1 --ttft 1s --tpot 50ms"),
        ["estimate", "--model", ENCODER, *words("--gpu l4 --isl 512 --concurrency 32")],
        words("estimate --model llama3.1-8b --gpu h100 --isl 1k --osl 200 --request-rate 1 --disaggregate 1P1D"),
        words(
            "estimate --model llama3.1-8b --gpu h100 --isl 1k --osl 9 --concurrency 4 --medusa-heads 4 --acceptance 0.6"
        ),
    ],
    "advise": [words("advise --model llama3.1-8b --gpu h100 --isl 1k --osl 200 --concurrency 16")],
    "speculate": [
        words("speculate --acceptance 0.5,0.95 --draft-tokens 4 --draft-ratio 0.1"),
        words("speculate --acceptance 0.7 --model llama3.1-8b --gpu h100 --medusa-heads 4 --batch 1,64"),
    ],
    "validate": [
        ["validate", SERVERS],
        ["validate", SERVERS, "--by", "engine,precision", "--probe", SERVERS],
    ],
    "profiles list": [["profiles", "list"]],
    "profiles show": [["profiles", "show", "h100"]],
    "attention-pairs": [["attention-pairs", "--prompt", "6", "--new", "2"]],
    "models list": [["models", "list"]],
    "models show": [["models", "show", CONFIG]],
    "models import": [["models", "import", CONFIG, "--name", "gemma"]],
    "models validate": [["models", "validate", str(ROOT / "pyproject.toml")]],
    "plan": [
        words(
            "plan --model llama3.1-8b --gpu h100,l4 --isl 1000 --osl 200 --request-rate 20 --tpot 30ms --on 2026-11-29"
        ),
        words(
            "plan --model llama3.1-8b --gpu t4 --isl 1000 --osl 200 --concurrency 20 --tpot 1ms --price-per-gpu-hour 1"
        ),
    ],
    "sweep": [words("sweep --model llama3.1-8b --gpu h100,t4 -tp 1 --isl 1k,2k --osl 200 --concurrency 1:64")],
    "compare": [
        ["compare", *(str(ROOT / "tests" / "data" / "documents" / f"cost_{name}.json") for name in ("before", "after"))]
    ],
    "diff": [
        ["diff", *(str(ROOT / "tests" / "data" / "documents" / f"cost_{name}.json") for name in ("before", "after"))]
    ],
    "cost": [
        words("cost --throughput 100 --tokens-per-request 500 --requests-per-day 10000 --price-per-gpu-hour 3"),
        words(
            "cost --model llama3.1-8b --gpu h100 --isl 1000 --osl 200 --concurrency 16 --on 2026-11-29 --throughput-rule"
        ),
    ],
    "prices list": [["prices", "list"], ["prices", "list", "--gpu", "h100", "--on", "2026-09-30"]],
    "prices show": [["prices", "show", "h200"], ["prices", "show", "deepseek-r1"]],
    "prices import": [["prices", "import", str(ROOT / "hardware" / "prices" / "gpu_prices.csv"), "--on", "2026-11-29"]],
    "gpus list": [["gpus", "list"]],
    "gpus show": [["gpus", "show", "h200"]],
    "gpus validate": [["gpus", "validate", str(ROOT / "hardware" / "h200-sxm-141gb.yaml")]],
}


@pytest.fixture
def answer(capsys: pytest.CaptureFixture[str]) -> Any:
    def ask(*argv: str, code: int = 0) -> str:
        assert run(list(argv)) == code, capsys.readouterr().err
        return capsys.readouterr().out

    return ask


@pytest.mark.parametrize("command", [name for name in RESULTS if not name.startswith("calibrate ")])
def test_every_document_fits_its_committed_schema(command: str, capsys: pytest.CaptureFixture[str]) -> None:
    committed = json.loads(
        (ROOT / "docs" / "schemas" / f"{command.replace(' ', '-')}.json").read_text(encoding="utf-8")
    )
    assert command_schema(command) == committed, "run: python tools/schemas.py"
    for argv in ANSWERED[command]:
        run([*argv, "--json", "--explain"])
        text = capsys.readouterr().out
        jsonschema.validate(json.loads(text), committed)
        run([*argv, "--json", "--explain"])
        assert capsys.readouterr().out == text, "the same input must give the same bytes"


def test_the_document_has_its_keys_in_order(answer: Any) -> None:
    document = json.loads(answer(*UNIFORM, "--seq", "8k", "--json"))
    assert list(document) == [
        "schema_version", "capplan_version", "command", "inputs", "result", "provenance", "assumptions", "warnings", "sources",
    ]  # fmt: skip
    assert document["result"]["kv_bytes"] + document["result"]["state_bytes"] == document["result"]["total_bytes"]


@pytest.mark.parametrize(
    ("argv", "code", "said"),
    [
        (["kvv"], 2, "did you mean kv"),
        (["kv", "--model", "llama2-70b"], 2, "--seq"),
        (["kv", "--model", "llama2-70b", "--sek", "5"], 2, "--seq"),
        ([*UNIFORM, "--seq", "-5"], 2, "--seq"),
        ([*UNIFORM, "--seq", "5", "--kv-cache-dtype", "fp9"], 2, "fp8"),
        (["kv", "--seq", "5"], 2, "--model"),
        (["kv", "--model", "no-such-model", "--seq", "5"], 3, "no model named"),
        (["kv", "--model", "./missing.yaml", "--seq", "5"], 3, "missing.yaml"),
        (["gpus", "show", "h10"], 3, "h100"),
        (["weights", "--params", "35e9"], 2, "--bits"),
        (["weights", "--params", "35e9", "--bits", "0"], 2, "--bits"),
        (["models", "frobnicate"], 2, "frobnicate"),
        (["attention-pairs", "--prompt", "6", "--new", "1M"], 2, "--new"),
    ],
)
def test_mistakes_have_one_block_and_their_exit_code(
    argv: list[str], code: int, said: str, capsys: pytest.CaptureFixture[str]
) -> None:
    assert run(argv) == code
    out, err = capsys.readouterr()
    assert out == ""
    assert err.startswith("error: ")
    assert said in err
    assert "Traceback" not in err
    assert run([*argv, "--json"]) == code
    document = json.loads(capsys.readouterr().out)
    assert list(document["error"]) == ["kind", "message", "hint", "where"]


def test_an_unsupported_architecture_is_refused_by_name(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    config = tmp_path / "config.json"
    config.write_text('{"model_type": "llamax", "hidden_size": 8}')
    assert run(["weights", "--model", str(config)]) == 4
    assert "llamax" in capsys.readouterr().err
    config.write_text(Path(CONFIG).read_text().replace('"head_dim"', '"num_secret_experts": 4, "head_dim"'))
    assert run(["weights", "--model", str(config)]) == 4
    assert "num_secret_experts" in capsys.readouterr().err
    assert run(["weights", "--model", str(config), "--ignore-key", "num_secret_experts"]) == 0


@pytest.mark.parametrize("flag", ["--csv", "--markdown"])
def test_tables_come_as_csv_and_markdown(flag: str, answer: Any) -> None:
    lines = answer(*UNIFORM, "--seq", "8k,64k", flag).splitlines()
    if flag == "--csv":
        assert lines == [
            "seq,total_bytes,total_bytes_exact",
            "8192,1073741824,1073741824",
            "65536,8589934592,8589934592",
        ]
    else:
        assert lines[0] == "| tokens | KV cache + state | bytes |"
        assert lines[3] == "| 65,536 | 8.00 GiB | 8,589,934,592 |"


@pytest.mark.parametrize("command", [name for name in RESULTS if not name.startswith("calibrate ")])
def test_csv_has_numbers_under_numeric_headings(
    command: str, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """Columns that people see aligned as numbers hold nothing but numbers, and no column holds numbers with units."""
    shown: list[Table] = []
    monkeypatch.setattr(tables, "to_csv", lambda table, own=tables.to_csv: shown.append(table) or own(table))
    with_unit = re.compile(
        r"[+-]?\$?[\d,]*\.?\d+ ?(\*|%|x|[a-zµ]?s|[KMGT]?i?B|[GTM]?B/s|[KMGT]|T?FLOP(/s)?|1/s|USD)?( \*)?"
    )
    for argv in ANSWERED[command]:
        run([*argv, "--csv"])
        out, err = capsys.readouterr()
        if not shown:
            assert "this answer is not a table" in err
            continue
        header, *rows = csv.reader(out.splitlines())
        (table,) = shown
        shown.clear()
        assert header == [column.name for column in table.columns]
        assert all(header), "a column without a name"
        for column, cells in zip(table.columns, zip(*rows, strict=True), strict=False):
            for cell in filter(None, cells):
                if column.numeric:
                    float(cell)
                else:
                    assert not with_unit.fullmatch(cell) or plainly_named(cell), (column, cell)


def plainly_named(cell: str) -> bool:
    """Whether a cell is a bare number or the name of an instance of so many devices: ``8x``."""
    return cell.replace(".", "", 1).lstrip("+-").isdigit() or re.fullmatch(r"\d+x", cell) is not None


def test_explain_shows_formula_numbers_and_result(answer: Any) -> None:
    text = answer(*UNIFORM, "--seq", "8k", "--explain")
    assert "L · B · entries · elements · b" in text
    assert "32 · 1 · (S = 8192) · (2·Hkv·D = 2·8·128) · 2" in text
    assert "1,073,741,824 B" in text


@pytest.mark.parametrize("module", [kv_module, weights_module, roofline_module, step_module])
def test_the_short_way_reads_as_typer_does(module: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    """Both parsers hand the same arguments on, for every option alone and for all together."""
    words: list[list[str]] = []
    for parameter in inspect.signature(module.command).parameters.values():
        info = parameter.annotation.__metadata__[0]
        kind = parameter.annotation.__args__[0] if hasattr(parameter.annotation, "__args__") else str
        words += [[spelling] if kind is bool else [spelling, "7"] for spelling in spelled(info)]
    required = [pair for pair in words if pair[0] == "--seq"]
    lines = [[word for pair in [*required, option] for word in pair] for option in words]
    lines.append([word for pair in words for word in pair])
    lines.append(
        [word for pair in words for word in ([f"{pair[0]}=7"] if len(pair) == 2 and pair[0].startswith("--") else pair)]
    )
    for line in lines:
        seen: dict[str, Any] = {}
        app = typer.Typer(add_completion=False)

        def record(**arguments: Any) -> None:
            seen.update(arguments)  # noqa: B023 - called within this round

        record.__signature__ = inspect.signature(module.command)  # type: ignore[attr-defined]
        record.__annotations__ = dict(module.command.__annotations__)
        app.command()(record)
        typer.main.get_command(app).main(args=line, standalone_mode=False)
        assert quick(module.command, line) == seen, line


@pytest.mark.parametrize(
    "line", [["--help"], ["--seq"], ["--seq", "--batch"], ["5"], ["--no-such"], ["--seq", "5", "--json=1"], []]
)
def test_the_short_way_leaves_the_rest_to_typer(line: list[str]) -> None:
    assert quick(kv_module.command, line) is None


def test_every_command_is_documented(capsys: pytest.CaptureFixture[str]) -> None:
    assert run(["--help"]) == 0
    listed = capsys.readouterr().out
    for name in COMMANDS:
        assert name in listed
        assert run([name, "--help"]) == 0
        assert "Usage: capplan" in capsys.readouterr().out


def test_a_files_kind_is_told_in_any_letters(tmp_path: Path, answer: Any) -> None:
    """Every suffix that says how a file is read or written, in capitals: the same answer as in small letters."""

    def both(name: str, text: bytes) -> tuple[Path, Path]:
        (tmp_path / "small").mkdir(exist_ok=True)
        (tmp_path / "CAPITALS").mkdir(exist_ok=True)
        stem, _, suffix = name.rpartition(".")
        paths = tmp_path / "small" / name, tmp_path / "CAPITALS" / f"{stem}.{suffix.upper()}"
        for path in paths:
            path.write_bytes(text)
        return paths

    model = both("model.yaml", (ROOT / "models" / "llama3.1-8b.yaml").read_bytes())
    config = both("config.json", Path(CONFIG).read_bytes())
    device = both("device.yaml", (ROOT / "hardware" / "l4.yaml").read_bytes())
    trace = both("trace.csv", b"arrival\n0\n10\n4000\n")
    table = both("table.csv", (ROOT / "hardware" / "prices" / "gpu_prices.csv").read_bytes())
    documents = both("before.json", (ROOT / "tests" / "data" / "documents" / "cost_before.json").read_bytes())
    cost = ["cost", "--throughput", "100", "--tokens-per-request", "500", "--price-per-gpu-hour", "3"]
    for place in (0, 1):
        for path, argv in (
            (model[place], ["weights", "--model", str(model[place])]),
            (config[place], ["weights", "--model", str(config[place])]),
            (device[place], ["fit", "--model", CONFIG, "--max-model-len", "8k", "--gpu", str(device[place])]),
            (trace[place], [*cost, "--load-profile", str(trace[place])]),
            (table[place], ["prices", "import", str(table[place]), "-o", str(table[place].with_name(f"o{table[place].suffix}"))]),
            (documents[place], ["diff", str(documents[place]), str(documents[place])]),
        ):  # fmt: skip
            assert answer(*argv, "--csv"), path
    for suffix in ("svg", "html", *(["png"] if find_spec("cairosvg") else [])):
        drawn = tmp_path / f"drawn.{suffix.upper()}"
        answer("roofline", "--model", CONFIG, "--gpu", "l4", "--plot", str(drawn))
        assert drawn.stat().st_size > 1000
    sweep = words("sweep --model llama3.1-8b --gpu l4 -tp 1 --isl 512 --osl 9 --concurrency 1,8 --price-per-gpu-hour 1")
    for suffix in ("csv", "jsonl"):
        small, capital = tmp_path / f"rows.{suffix}", tmp_path / f"ROWS.{suffix.upper()}"
        answer(*sweep, "--out", str(small))
        answer(*sweep, "--out", str(capital))
        assert small.read_bytes() == capital.read_bytes()


@pytest.mark.parametrize("name", ["a" * 3000, "x\0", "\ud800", "missing", "file.txt"])
def test_folders_that_are_none_are_named(name: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    (tmp_path / "file.txt").touch()
    folder = str(tmp_path / name)
    for flag, argv in (
        ("--models-dir", ["kv", "--model", "llama2-7b", "--seq", "1"]),
        ("--hardware-dir", ["prices", "list"]),
        ("--hardware-dir", ["gpus", "show", "l4"]),
        ("--profiles-dir", ["profiles", "list"]),
    ):
        code, err = run([*argv, f"{flag}={folder}"]), capsys.readouterr().err
        if not name.isprintable() and argv[0] != "kv":  # the parser of groups refuses these itself
            assert (code, err[:7]) == (2, "error: ")
            continue
        assert code == 3
        assert err.startswith("error: there is no folder")
        assert f"where: {flag}" in err
        assert len(err) < 600


@pytest.mark.parametrize("stem", ["x\0", "\ud800", "a" * 300, "missing/x"])
def test_files_that_cannot_be_written_are_named(stem: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    load = words("--model llama3.1-8b --gpu h100 --isl 512 --osl 9")
    for flag, suffix, argv in (
        ("--plot", ".svg", ["roofline", "--model", CONFIG, "--gpu", "l4"]),
        ("--out", ".csv", ["simulate", *load, "--concurrency", "2", "--requests", "4"]),
        ("--out", ".csv", ["sweep", *load, "-tp", "1", "--concurrency", "1", "--price-per-gpu-hour", "1"]),
        ("--out", ".csv", ["validate", SERVERS]),
        ("--output", ".yaml", ["models", "import", CONFIG]),
    ):
        assert run([*argv, f"{flag}={tmp_path / stem}{suffix}"]) == 2, argv
        err = capsys.readouterr().err
        assert err.startswith("error: cannot write" if stem in ("a" * 300, "missing/x") else "error: ")
        assert flag in err.split("where: ")[1]


def test_what_is_no_plain_file_is_written_to_and_not_replaced(tmp_path: Path) -> None:
    """A link stays a link, and a pipe a pipe: what reads its other end gets the description."""
    target, link, pipe = tmp_path / "target.yaml", tmp_path / "link.yaml", tmp_path / "pipe.yaml"
    link.symlink_to(target)
    os.mkfifo(pipe)
    reader = subprocess.Popen(["cat", str(pipe)], stdout=subprocess.PIPE, text=True)
    for path in (link, pipe):
        assert run(["models", "import", CONFIG, "--name", "gemma", "--output", str(path)]) == 0
    assert link.is_symlink()
    assert pipe.is_fifo()
    assert reader.communicate()[0] == target.read_text()


@pytest.mark.skipif(not Path("/dev/full").is_char_device(), reason="no device without an end")
def test_files_without_an_end_are_not_read_to_it(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    endless = tmp_path / "endless.csv"
    endless.symlink_to("/dev/full")
    cost = ["cost", "--throughput", "9", "--tokens-per-request", "5", "--price-per-gpu-hour", "3"]
    for argv in (
        [*cost, "--load-profile", str(endless)],
        ["compare", str(endless), str(endless)],
        ["prices", "import", str(endless)],
        ["models", "validate", str(endless)],
        ["validate", str(endless)],
        ["import-log", str(endless), "--model", CONFIG],
    ):
        assert run(argv) == 2, capsys.readouterr().err


def in_process(*argv: str, **environment: str) -> subprocess.CompletedProcess[str]:
    code = f"import sys; from capplan.cli.app import run; sys.exit(run({list(argv)!r}))"
    env = {key: value for key, value in os.environ.items() if key not in ("NO_COLOR", "FORCE_COLOR")} | environment
    return subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, env=env, cwd="/", check=False)


def test_a_pipe_gets_plain_text_and_a_terminal_colours() -> None:
    plain = in_process(*UNIFORM, "--seq", "8k")
    assert "\x1b" not in plain.stdout
    assert "\x1b" in in_process(*UNIFORM, "--seq", "8k", FORCE_COLOR="1").stdout
    assert "\x1b[3" not in in_process(*UNIFORM, "--seq", "8k", FORCE_COLOR="1", NO_COLOR="1").stdout


def test_the_version_needs_no_heavy_import() -> None:
    code = (
        "import sys; from capplan.cli.app import run; run(['--version']); "
        "print([m for m in ('typer', 'pydantic', 'yaml', 'rich') if m in sys.modules])"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout.splitlines()[1] == "[]"


def test_kv_imports_no_numpy_and_no_torch() -> None:
    code = (
        f"import sys; from capplan.cli.app import run; run({[*UNIFORM, '--seq', '8k', '--json']!r}); "
        "print([m for m in ('numpy', 'torch', 'rich') if m in sys.modules], file=sys.stderr)"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stderr.strip() == "[]"


def test_a_closed_pipe_is_no_mistake() -> None:
    code = "import sys; from capplan.cli.app import run; sys.exit(run(['gpus', 'list', '--json']))"
    process = subprocess.Popen([sys.executable, "-c", code], stdout=subprocess.PIPE, stderr=subprocess.PIPE)
    assert process.stdout is not None
    assert process.stderr is not None
    process.stdout.close()
    assert process.stderr.read() == b""
    assert process.wait() == 0


def test_a_bug_is_one_line(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> None:
    def broken(*words: Any) -> None:
        raise RuntimeError("planted")

    monkeypatch.setattr("capplan.cli.app._invoke", broken)
    assert run(["kv"]) == 70
    assert capsys.readouterr().err == "bug: RuntimeError: planted (run with --debug for the traceback)\n"
    with pytest.raises(RuntimeError):
        run(["kv", "--debug"])
