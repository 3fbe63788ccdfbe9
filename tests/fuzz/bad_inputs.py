"""Bad descriptions, configurations and command lines, generated from a seed.

Each `Case` is a command line, the files that it needs, and whether any answer to it would be wrong (`hopeless`). The
rest are odd but may be answered. Nothing here knows how capplan checks its inputs.
"""

from __future__ import annotations

import json
import random
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

CONFIGS = sorted((Path(__file__).parents[1] / "data" / "model_truth" / "configs").glob("*.json"))
DATA = Path(__file__).parents[1] / "data"
SOUND = {
    "json": sorted((DATA / "documents").glob("*.json")),
    "csv": sorted((DATA / "measured").glob("*.csv")),
    "log": sorted((DATA / "logs").glob("*.log")),
}
"""Files that are in order, by their kind."""

SIZES = ("hidden_size", "num_hidden_layers", "num_attention_heads", "vocab_size")

WRONG = [
    -1,
    0,
    "many",
    "4096",
    4096.5,
    True,
    [],
    {},
    [1],
    {"a": 1},
    float("nan"),
    float("inf"),
    10**30,
    -(10**12),
    "",
    "\u0000",
]

DESCRIPTION: dict[str, Any] = {
    "schema": 1,
    "name": "sample",
    "hidden_size": 256,
    "embedding": {"vocab_size": 1000, "tied": True},
    "blocks": {
        "local": {
            "mixer": {"kind": "attention", "heads": 8, "kv_heads": 4, "head_dim": 32, "window": 128},
            "ffn": {"kind": "dense", "intermediate_size": 512},
        },
        "global": {
            "mixer": {
                "kind": "mla",
                "heads": 8,
                "kv_lora_rank": 64,
                "qk_nope_head_dim": 32,
                "qk_rope_head_dim": 16,
                "v_head_dim": 32,
            },
            "ffn": {"kind": "moe", "experts": 8, "top_k": 2, "intermediate_size": 64},
        },
    },
    "layers": "2*(3*local + global)",
}

FLAGS = ["--model", "--seq", "--batch", "--kv-cache-dtype", "-tp", "--layers", "--kv-heads", "--head-dim", "--images",
         "--source-seq", "--params", "--bits", "--weight-dtype", "--prompt", "--new", "--json", "--explain", "--csv",
         "--markdown", "--window", "--models-dir", "--ignore-key", "--no-such-flag", "-q", "--seq=5", "--batch=", "-h",
         "--gpu", "--context", "--isl", "--prefix", "--decode", "--prefill", "--gpu-memory", "--memory-bandwidth", "--tflops",
         "-pp", "-dp", "-dcp", "-ep", "--engine", "--max-num-batched-tokens", "--network-bandwidth", "--gpus-per-node"]  # fmt: skip
VALUES = ["", "0", "-1", "nan", "inf", "1e400", "8k", "64k,", ",", "1,2,3", "1e30", "ten", "0x10", "１２", "4096;ls", "../../etc/passwd",
          "/dev/null", "/", "~", "llama2-70b", "LLAMA2_70B", "no-such-model", "meta-llama/Llama-2-70b-hf", "a" * 5000, "\u0000", "\ud800",
          "bf16", "fp7", "fp8", "%s%n", "{}", "$(id)", "-", "--", "1 000", "1_000", "1.5k", "9" * 400, "128", "4",
          "h100", "mi300x", "24GiB", "1TB/s", "bf16=165,fp8", "64@4096", "1@", "@", "2048@8k", "sglang"]  # fmt: skip
COMMANDS = ["kv", "weights", "attention-pairs", "models", "gpus", "kvv", "", "--json", "help", "models list", "models show", "models import",
            "models validate", "gpus list", "gpus show", "gpus validate", "decode", "prefill", "step", "roofline",
            "profiles list", "profiles show"]  # fmt: skip
LINES = [
    "fit --model llama3.1-8b --gpu l4 --engine vllm -tp 1 --max-model-len 8k --max-num-seqs 8 --weight-dtype fp8",
    "fit --model llama3.1-8b --available-kv-bytes 5GiB --kv-cache-dtype fp8 --gpu-memory-utilization 0.9 --block-size 16",
    "cost --throughput 100 --tokens-per-request 500 --requests-per-day 1000 --price-per-gpu-hour 3 --gpus 2",
    "cost --model llama3.1-8b --gpu h100 --isl 1k --osl 100 --concurrency 8 --provider lambda --on 2026-11-29 --pue 1.2",
    "cost --throughput 9 --tokens-per-request 5 --price-per-gpu-hour 3 --load-profile 8-20:5,20-8:0.5 --billing hourly",
    "estimate --model llama3.1-8b --gpu h100 --isl 1k --osl 100 --concurrency 8 --ttft 1s --tpot 50ms",
    "estimate --model llama3.1-8b --gpu h100 --isl 1k --osl 100-300 --request-rate 2 --prefix-hit-rate 0.5",
    "simulate --model llama3.1-8b --gpu h100 --isl 1k --osl 9 --concurrency 4 --requests 9 --seed 1 --out rows.csv",
    "speculate --acceptance 0.5,0.9 --draft-tokens 4 --draft-ratio 0.1 --batch 1,8",
    "plan --model llama3.1-8b --gpu h100 --isl 1k --osl 99 --request-rate 2 --engine vllm --max-nodes 1 --top 2",
    "plan --model llama3.1-8b --gpu l4 --isl 1k --osl 99 --concurrency 4 --price-cap 9 --on 2026-11-29 --region us-east-1",
    "sweep --model llama3.1-8b --gpu l4 -tp 1 --isl 512 --osl 9 --concurrency 1:8 --price-per-gpu-hour 1 --out rows.csv",
    "prices list --gpu h100 --provider lambda --commitment on-demand --on 2026-11-29 --hardware-dir .",
    "prices show h100 --on 2026-11-29 --models-dir .",
    "prices import odd.csv --provider mine --on 2026-11-29 -o prices.csv",
    "compare odd.json odd.json",
    "diff odd.json odd.json --fail-above 1",
    "import-log odd.log --model llama3.1-8b --gpu l4",
    "validate odd.csv --by model --gpu h100 --engine vllm --out predictions.csv",
    "roofline --model llama3.1-8b --gpu h100 --batch 1,64 --plot drawn.svg",
]
"""Lines of every command that takes a number, a name or a file, each of which is in order but for files that are odd."""

ODD = [*VALUES, "inf", "-inf", "0.0", "1:0", "1:2:3", "5-1", "1..5", "1e308", "0.0000001", "dir.csv", "dir.json", ".", "h100,l4",
       "rows.CSV", "2026-13-01", "/dev/full", "x\u0000.svg", "drawn.pdf", "é.csv", "#2", "odd.json#2", "9:9:9", "8-20:nan"]  # fmt: skip
OUTPUTS = ("--out", "-o", "--plot")
"""Options whose values are files to write: their odd values stay within the folder of a case."""
ODD_OUTPUTS = ["", ".", "-", "dir.csv", "rows.CSV", "drawn.pdf", "é.csv", "x\u0000.csv", "\ud800.svg", "a" * 300 + ".csv",
               "missing/rows.csv", "odd.json", "x.parquet"]  # fmt: skip
CONTENTS = [b"", b"[]", b"null", b"{}", b"\x00\xff", b"arrival\nnan\n", b"id,model\n1,2\n", b'{"command": "cost", "result": {}}',
            b'{"schema_version": 1, "command": "cost", "inputs": {}, "result": {"cost_per_month": "NaN"}}',
            b'{"schema_version": 1, "command": "cost", "result": {"cost_per_month": "1e99", "lines": [1, {"name": []}]}}',
            b'{"schema_version": 1, "command": "plan", "result": {"plans": [{"gpus": "many", "cost_per_month": 1}]}}',
            b'{"schema_version": 1, "command": "estimate", "inputs": [], "result": {"mean_ttft_ms": 1e400}}']  # fmt: skip


@dataclass
class Case:
    """One command line, its files by name, and whether any answer to it would be wrong."""

    kind: str
    argv: list[str]
    files: dict[str, bytes] = field(default_factory=dict)
    hopeless: bool = False


def cases(seed: int, count: int) -> Iterator[Case]:
    """`count` cases of all kinds in turn."""
    rng = random.Random(seed)
    makers = (bad_yaml, bad_config, bad_argv, bad_value)
    for index in range(count):
        yield makers[index % len(makers)](rng)


def bad_yaml(rng: random.Random) -> Case:
    """A model description with one thing wrong."""
    data = json.loads(json.dumps(DESCRIPTION))
    way = rng.randrange(11)
    if way == 0:
        path = rng.choice(list(_leaves(data)))
        numeric = isinstance(_get(data, path), int) and not isinstance(_get(data, path), bool)
        wrong = rng.choice([value for value in WRONG if not (value == 0 and path[-1] in ("qk_rope_head_dim",))])
        _set(data, path, wrong)
        hopeless = numeric and not (path[-1] == "schema" and wrong is True)
        text = to_yaml(data)
    elif way == 1:
        text, hopeless = to_yaml(data) + "name: again\n", True
    elif way == 2:
        data["blocks"]["local"]["mixer"][rng.choice(["kv_heads", "heads"])] = rng.choice([3, 5, 7, 9])
        text, hopeless = to_yaml(data), True
        if data["blocks"]["local"]["mixer"]["heads"] % data["blocks"]["local"]["mixer"]["kv_heads"] == 0:
            hopeless = False
    elif way == 3:
        data["layers"] = rng.choice(
            ["", "*", "3*", "local +", "(local", "1000000*local", "9999*(9999*local)", "other", "(" * 500, "0*local", 5]
        )
        text, hopeless = to_yaml(data), True
    elif way == 4:
        path = rng.choice([(), ("blocks", "local", "mixer"), ("embedding",), ("blocks", "global", "ffn")])
        _get(data, path)[rng.choice(["hiden_size", "kv_head", "x", "kindd", "\u00e9"])] = 1
        text, hopeless = to_yaml(data), True
    elif way == 5:
        del data[rng.choice(["name", "hidden_size", "embedding", "blocks", "layers"])]
        text, hopeless = to_yaml(data), True
    elif way == 6:
        text, hopeless = "a: " + rng.choice("[{") * rng.choice([50, 5000, 100000]), True
    elif way == 7:
        text, hopeless = (
            to_yaml(data)[: rng.randrange(20, 200)] + rng.choice(["\t", "\x00", "%", "&a *a", "!!python/object:x"]),
            True,
        )
    elif way == 8:
        body = "x0: &x0 [a, a, a, a, a, a, a, a, a, a]\n"
        body += "".join(f"x{i}: &x{i} [{', '.join([f'*x{i - 1}'] * 10)}]\n" for i in range(1, 9))
        text, hopeless = body, True
    elif way == 9:
        data["blocks"]["local"]["mixer"]["kind"] = rng.choice(["attn", None, 3, "", "moe", ["attention"]])
        text, hopeless = to_yaml(data), True
    else:
        return Case("yaml", _question(rng, "bad.yaml"), {"bad.yaml": rng.randbytes(rng.randrange(1, 400))}, True)
    return Case("yaml", _question(rng, "bad.yaml"), {"bad.yaml": text.encode("utf-8", "surrogatepass")}, hopeless)


def bad_config(rng: random.Random) -> Case:
    """A real configuration with one thing wrong."""
    text = rng.choice(CONFIGS).read_text(encoding="utf-8")
    data = json.loads(text)
    way = rng.randrange(8)
    hopeless = True
    if way == 0:
        text_part = data["text_config"] if isinstance(data.get("text_config"), dict) else data
        present = [key for key in SIZES if isinstance(text_part.get(key), int)]
        if present:
            text_part[rng.choice(present)] = rng.choice(WRONG)
        else:
            data["model_type"] = None
        text = json.dumps(data)
    elif way == 1:
        text = text.rstrip()[:-1] + f', "model_type": "{data.get("model_type")}"}}'
    elif way == 2:
        data["model_type"] = rng.choice(["llamas", "", None, 7, [], "gpt5", "\u0000", "x" * 10000])
        text = json.dumps(data)
    elif way == 3:
        text = text[: rng.randrange(1, max(2, len(text) - 2))]
    elif way == 4:
        data[rng.choice(["num_extra_experts", "hidden_size_2", "attention_window_dim", "moe_layers_extra"])] = (
            rng.choice([3, 128, [1, 2], True])
        )
        text = json.dumps(data)
    elif way == 5:
        text = '{"model_type": "llama", "x": ' + rng.choice(["[", '{"a":']) * rng.choice([45, 3000, 200000])
    elif way == 6:
        key = rng.choice(list(data))
        data[key] = rng.choice(WRONG)
        text, hopeless = json.dumps(data), False
    else:
        return Case(
            "config", _question(rng, "config.json"), {"config.json": rng.randbytes(rng.randrange(1, 400))}, True
        )
    return Case(
        "config", _question(rng, "config.json"), {"config.json": text.encode("utf-8", "surrogatepass")}, hopeless
    )


def bad_argv(rng: random.Random) -> Case:
    """Words that a user might type, in no good order."""
    argv = rng.choice(COMMANDS).split(" ")
    for _ in range(rng.randrange(0, 6)):
        argv.append(rng.choice(FLAGS))
        if rng.random() < 0.8:
            argv.append(rng.choice(VALUES))
    return Case("argv", argv)


def bad_value(rng: random.Random) -> Case:
    """A line that is in order but for one value, or for what is in its files."""
    argv = rng.choice(LINES).split(" ")
    values = [place for place, word in enumerate(argv) if place and not word.startswith("-")]
    for place in rng.sample(values, rng.choice([0, 1, 1, 1, 2])):
        argv[place] = rng.choice(ODD_OUTPUTS if argv[place - 1] in OUTPUTS else ODD)
    argv += rng.choice([[], [], ["--json"], ["--csv"], ["--explain"], ["--markdown"]])
    files = {f"odd.{suffix}": rng.choice([rng.choice(CONTENTS), _damaged(rng, suffix)]) for suffix in SOUND}
    return Case("value", argv, files)


def _damaged(rng: random.Random, suffix: str) -> bytes:
    """A file that is in order, or that lacks its end, or one of whose values is another."""
    text = rng.choice(SOUND[suffix]).read_text(encoding="utf-8")
    way = rng.randrange(3)
    if way == 0 or not text:
        return text.encode()
    if way == 1:
        return text[: rng.randrange(len(text))].encode()
    if suffix == "json":
        data = json.loads(text)
        part, keys = data, []
        while isinstance(part, (dict, list)) and part and len(keys) < 6:
            keys.append(rng.choice(list(part) if isinstance(part, dict) else range(len(part))))
            part = part[keys[-1]]
        _set(data, tuple(keys[: rng.randrange(1, len(keys) + 1)]), rng.choice(WRONG))
        return json.dumps(data).encode("utf-8", "surrogatepass")
    words = text.split(",")
    words[rng.randrange(len(words))] = str(rng.choice(WRONG))
    return ",".join(words).encode("utf-8", "surrogatepass")


def to_yaml(data: Any) -> str:
    """JSON is YAML, except that YAML writes NaN and infinities its own way."""
    lines = [f"{json.dumps(key, ensure_ascii=False)}: {json.dumps(value)}" for key, value in data.items()]
    return "\n".join(lines).replace("NaN", ".nan").replace("-Infinity", "-.inf").replace("Infinity", ".inf") + "\n"


def _question(rng: random.Random, name: str) -> list[str]:
    output = ["--json"] if rng.random() < 0.5 else []
    ways = [
        ["kv", "--model", f"./{name}", "--seq", "4096"],
        ["weights", "--model", f"./{name}"],
        ["models", "show", f"./{name}"],
    ]
    if name.endswith(".yaml"):
        ways.append(["models", "validate", name])
    return rng.choice(ways) + output


def _leaves(data: Any, path: tuple[Any, ...] = ()) -> Iterator[tuple[Any, ...]]:
    if isinstance(data, dict):
        for key, value in data.items():
            yield from _leaves(value, (*path, key))
    else:
        yield path


def _get(data: Any, path: tuple[Any, ...]) -> Any:
    for key in path:
        data = data[key]
    return data


def _set(data: Any, path: tuple[Any, ...], value: Any) -> None:
    _get(data, path[:-1])[path[-1]] = value
