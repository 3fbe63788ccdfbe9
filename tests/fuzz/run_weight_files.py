"""Read generated bad headers, GGUF files and quantisation configurations, and say what went wrong.

Run: python tests/fuzz/run_weight_files.py [count] [seed]     (10,000 cases by default)
"""

from __future__ import annotations

import json
import sys
import time
from collections import Counter
from collections.abc import Iterator
from pathlib import Path

sys.path.insert(0, str(Path(__file__).parent))

from weight_files import Case, cases

from capplan.describe.checkpoint import parse_index
from capplan.describe.gguf import read_gguf
from capplan.describe.gguf_model import gguf_spec
from capplan.describe.quantisation_config import read_quantisation
from capplan.describe.safetensors import read_safetensors
from capplan.errors import CapplanError

MOST_SECONDS = 2.0
MOST_MEBIBYTES = 300
MODULES = ["lm_head", "model.embed_tokens"] + [
    f"model.layers.{layer}.{part}"
    for layer in range(4)
    for part in ("self_attn.q_proj", "mlp.gate", "mlp.experts.*.up_proj", "mlp.shared_experts.down_proj")
]


class Memory:
    """A file in memory that refuses to be read out of bounds."""

    name = "case"

    def __init__(self, data: bytes) -> None:
        self.data = data
        self.size = len(data)

    def read(self, offset: int, length: int) -> bytes:
        if offset < 0 or length < 0 or offset + length > self.size:
            raise AssertionError(f"read {length} bytes at {offset} of {self.size}")
        return self.data[offset : offset + length]


def read(case: Case) -> None:
    """Read a case as capplan does."""
    if case.kind == "safetensors":
        header = read_safetensors(Memory(case.data))
        if header.header_bytes + header.data_bytes != len(case.data):
            raise AssertionError("accepted a header that does not account for the file")
    elif case.kind == "index":
        parse_index(case.data.decode("utf-8", "replace"), "case")
    elif case.kind == "gguf":
        gguf_spec(read_gguf(Memory(case.data)), name="case")
    else:
        config = json.loads(case.data)
        extra = config.pop("hf_quant_config", None)
        plan = read_quantisation(config, where="case", hf_quant_config=extra)
        for module in MODULES:
            plan.scheme_for(module, "attention", (64, 64))


def failures(count: int, seed: int, tally: Counter[str] | None = None) -> Iterator[str]:
    """What is wrong with the way that capplan took each case."""
    peak = peak_mebibytes()
    for index, case in enumerate(cases(seed, count)):
        start = time.process_time()  # what other processes take of the machine doesn't count
        outcome = "read"
        try:
            read(case)
        except CapplanError as error:
            outcome = error.kind
        except BaseException as error:
            outcome = "escaped"
            yield f"case {index} ({case.kind}, {len(case.data)} bytes): {type(error).__name__}: {error}"[:300]
        seconds = time.process_time() - start
        if tally is not None:
            tally[f"{case.kind} {outcome}"] += 1
        if seconds > MOST_SECONDS:
            yield f"case {index} ({case.kind}, {len(case.data)} bytes): took {seconds:.1f} s"
        grown = peak_mebibytes() - peak
        if grown > MOST_MEBIBYTES:
            yield f"case {index} ({case.kind}, {len(case.data)} bytes): memory grew by {grown} MiB"
            peak = peak_mebibytes()


def peak_mebibytes() -> int:
    """The most memory that the process has held; 0 where the system does not tell."""
    try:
        import resource
    except ImportError:
        return 0
    unit = 1 << 20 if sys.platform == "darwin" else 1 << 10
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss // unit


def main() -> None:
    count = int(sys.argv[1]) if len(sys.argv) > 1 else 10_000
    seed = int(sys.argv[2]) if len(sys.argv) > 2 else 20261130
    tally: Counter[str] = Counter()
    start = time.perf_counter()
    found = list(failures(count, seed, tally))
    for line in found[:50]:
        print(line)
    seconds = time.perf_counter() - start
    print(f"{count} cases in {seconds:.0f} s: {len(found)} failures; {dict(sorted(tally.items()))}")
    sys.exit(1 if found else 0)


if __name__ == "__main__":
    main()
