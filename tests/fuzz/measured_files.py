"""Bad start-up logs, result files, tables and mapping files, generated from a seed.

A case begins as a sound file and has some things made wrong, or is hostile by design: lines without end, numbers of a
million digits, nesting, blanks that make patterns backtrack. Nothing here knows how capplan checks its inputs.
"""

from __future__ import annotations

import copy
import csv
import io
import json
import random
import re
from collections.abc import Iterator
from dataclasses import dataclass

from measured_samples import LOGS, LONG, MAPPINGS, RESULTS, TEXTS, WIDE, result_text
from weight_files import damaged, spoil

NUMBERS = ["0", "-1", "1", "0.0", "1.5", "1e5", "1e400", "-1e400", "nan", "inf", "Infinity", "0x10", "1_000", "٣", "", "x",
           "75,840", "7,58,40", "1,", ",1", "9" * 400, "0." + "1" * 400, "1." * 50, "18446744073709551616", "999999999999999",
           "1e-400", "- 1", "+5", " 7 ", "½", "\u2212" + "5"]  # fmt: skip
UNITS = ["GiB", "GB", "MiB", "MB", "KiB", "TiB", "bytes", "ms", "s", "us", "tokens", "x", "%", "tokens/s", "tokens/s/GPU",
         "req/s", "tokens/s (in+out)", ""]  # fmt: skip
WORDS = [
    "tokens",
    "GiB",
    "took",
    "size",
    "=",
    ":",
    "(",
    ")",
    "torch.bfloat16",
    "None",
    "True",
    "'",
    "{",
    "}",
    "[",
    "\\",
    "\t",
]
HOSTILE = [" " * 40_000, "=" * 200_000, "(" * 40_000, "'" * 40_000, "model='" + "\\'" * 20_000, "\x1b[" * 20_000,
           "1" * 100_000, ("a=" * 20_000), ("GPU KV cache size: " * 3000), ("took " * 8000), ("," * 100_000),
           "model weights take " + " " * 30_000 + "GiB", "{'a': " * 8000, "non-default args: " + "{'max_model_len': " * 3000,
           "| test | t/s |\n" + "| " * 50_000, "\r" * 50_000, "\n" * 300_000, "\x00", "\ufeff" * 3, "é" * 60_000,
           "llama_kv_cache: size = " + " " * 30_000 + "MiB", "server_args=ServerArgs(" + "a=1, " * 8000,
           "GPU KV cache size: 1,000 tokens\n" * 20_000, "[" * 200_000, '{"a":' * 100_000, '{"a":1}' * 40_000,
           '"' + "x" * 300_000, '"a\n' * 40_000, "id,model\n" + "a,b\n" * 40_000]  # fmt: skip


@dataclass(frozen=True)
class Case:
    """What to read (``log``, ``result``, ``table``, ``command``), the bytes of it, and a table's mapping file."""

    kind: str
    data: bytes
    mapping: bytes | None = None
    arguments: tuple[str, ...] = ()


def cases(seed: int, count: int) -> Iterator[Case]:
    """`count` cases of all kinds in turn."""
    rng = random.Random(seed)
    makers = (log_case, result_case, table_case, log_case, result_case, table_case, log_case, command_case)
    for index in range(count):
        yield makers[index % len(makers)](rng)


def finished(rng: random.Random, text: str) -> bytes:
    """The bytes of a text, sometimes hostile, in another coding, or damaged."""
    if rng.randrange(25) == 0:
        at = rng.randrange(len(text) + 1)
        text = text[:at] + rng.choice(HOSTILE) + text[at:]
    if rng.randrange(60) == 0:
        return text.encode(rng.choice(["utf-16", "utf-8-sig", "utf-32"]), "surrogatepass")
    data = text.encode("utf-8", "surrogatepass")
    return damaged(rng, data) if rng.random() < 0.25 else data


def spoilt_text(rng: random.Random, text: str) -> str:
    """Numbers, units, words and whole lines changed."""
    for _ in range(rng.randint(0, 4)):
        match rng.randrange(6):
            case 0:
                text = replaced(rng, r"\d[\d.,]*", text, rng.choice(NUMBERS))
            case 1:
                text = replaced(rng, r"\d[\d.,]*", text, str(rng.randint(0, 10**6)))
            case 2:
                text = replaced(rng, "|".join(map(re.escape, filter(None, UNITS))), text, rng.choice(UNITS))
            case 3:
                text = replaced(rng, r"\S+", text, rng.choice(WORDS))
            case 4:
                text = replaced(rng, r"[ ]+", text, rng.choice(["", "  ", "\t", " " * 50, "\u00a0"]))
            case _:
                text = shuffled_lines(rng, text)
    return text


def replaced(rng: random.Random, pattern: str, text: str, by: str) -> str:
    """One match of a pattern replaced."""
    found = list(re.finditer(pattern, text))
    if not found:
        return text
    chosen = rng.choice(found)
    return text[: chosen.start()] + by + text[chosen.end() :]


def shuffled_lines(rng: random.Random, text: str) -> str:
    """A line dropped, doubled, moved, joined to its next or cut."""
    lines = text.splitlines(keepends=True)
    if not lines:
        return text
    at = rng.randrange(len(lines))
    match rng.randrange(5):
        case 0:
            del lines[at]
        case 1:
            lines[at:at] = [lines[at]]
        case 2:
            lines.insert(rng.randrange(len(lines)), lines.pop(at))
        case 3:
            lines[at] = lines[at].rstrip("\n")
        case _:
            lines[at] = lines[at][: rng.randrange(len(lines[at]) + 1)]
    return "".join(lines)


def log_text(rng: random.Random) -> str:
    """A log, or two of them, spoilt."""
    name = rng.choice(sorted(LOGS))
    text = LOGS[name]
    if rng.random() < 0.15:
        text += LOGS[rng.choice(sorted(LOGS))]
    return spoilt_text(rng, text)


def log_case(rng: random.Random) -> Case:
    """A start-up log."""
    return Case("log", finished(rng, log_text(rng)))


def command_case(rng: random.Random) -> Case:
    """A start-up log for ``capplan import-log``, with flags."""
    models = ["qwen3-8b", "llama-3.1-8b", "gpt-oss-20b", "no-such-model"]
    flags = [("--model", rng.choice(models)), ("--gpu", rng.choice(["h100-sxm-80gb", "rtx-4090", "no-such-gpu"])),
             ("-tp", rng.choice(["1", "2", "3", "0", "x"])), ("--max-model-len", rng.choice(["8k", "131072", "-1"])),
             ("--start", rng.choice(["1", "2", "99"])), ("--engine", rng.choice(["vllm", "sglang", "llama.cpp", "x"])),
             ("--engine-version", rng.choice(["0.9.1", "b5000", "0.4.3", "zero"])),
             ("--kv-cache-dtype", rng.choice(["fp8", "q8_0", "x"]))]  # fmt: skip
    chosen = flags[: rng.randint(0, 2)] + rng.sample(flags[2:], rng.randint(0, 2))
    arguments = tuple(word for flag in chosen for word in flag)
    return Case("command", finished(rng, log_text(rng)), arguments=arguments)


def result_case(rng: random.Random) -> Case:
    """A result file of some tool."""
    if rng.random() < 0.35:
        text = TEXTS[rng.choice(sorted(TEXTS))] * rng.randint(1, 2)
        return Case("result", finished(rng, spoilt_text(rng, text)))
    result = copy.deepcopy(RESULTS[rng.choice(sorted(RESULTS))])
    for _ in range(rng.randint(0, 2)):
        spoil(rng, result)
    match rng.randrange(8):
        case 0:
            result = [result, result]
        case 1:
            other = RESULTS[rng.choice(sorted(RESULTS))]
            return Case("result", finished(rng, result_text(result) + rng.choice(["", "\n", ","]) + result_text(other)))
        case _:
            pass
    text = result_text(result)
    return Case("result", finished(rng, spoilt_text(rng, text) if rng.random() < 0.2 else text))


def table_case(rng: random.Random) -> Case:
    """A table, and sometimes a mapping file."""
    rows = copy.deepcopy(rng.choice([WIDE, LONG]))
    for _ in range(rng.randint(0, 3)):
        spoil_table(rng, rows)
    stream = io.StringIO()
    ending = rng.choice(["\n", "\r\n", "\r"])
    delimiter = rng.choice(",,,;\t")
    quoting = rng.choice([csv.QUOTE_MINIMAL, csv.QUOTE_ALL])
    csv.writer(stream, delimiter=delimiter, lineterminator=ending, quoting=quoting).writerows(rows)
    mapping = None
    if rng.random() < 0.4:
        data = copy.deepcopy(rng.choice(MAPPINGS))
        if rng.random() < 0.6:
            spoil(rng, data)
        mapping = json.dumps(data).encode("utf-8", "surrogatepass")
        if rng.random() < 0.2:
            mapping = damaged(rng, mapping)
    return Case("table", finished(rng, stream.getvalue()), mapping)


def spoil_table(rng: random.Random, rows: list[list[str]]) -> None:
    """A cell, a heading, a row or a column changed."""
    row = rng.choice(rows)
    if not row:
        return
    at = rng.randrange(len(row))
    match rng.randrange(7):
        case 0:
            row[at] = rng.choice(NUMBERS)
        case 1:
            row[at] = rng.choice(UNITS)
        case 2:
            row[at] = rng.choice(rng.choice(rows) or [""])
        case 3:
            del row[at]
        case 4:
            row.insert(at, rng.choice(["", "x", "1"]))
        case 5:
            rows.insert(rng.randrange(len(rows)), list(row))
        case _:
            row[at] = rng.choice(["a\nb", 'a"b', "x" * 2000, "#", " ", "\ud800", "\x00"])
