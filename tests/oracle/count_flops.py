"""Count the FLOPs of a forward pass with torch's own counter, on models that transformers builds without data.

The ledger of a step is tested against what another program counts in the same model: `FlopCounterMode` sees every
matrix product, batched product and convolution that transformers' code dispatches on the meta device. Attention is
the eager one (scores of all pairs, masked afterwards), experts are batched products of the chosen experts' weights.

It needs torch and transformers 5.24.0, and the suite does not: `tests/data/flop_counts.json` is its frozen answer.

    python -m tests.oracle.count_flops tests/data/flop_counts.json
"""

from __future__ import annotations

import argparse
import json
import re
import sys
from collections import defaultdict
from pathlib import Path
from typing import Any

import torch
import transformers
from torch.utils.flop_counter import FlopCounterMode

from tests.oracle.count_parameters import TRANSFORMERS_VERSION, configuration, on_meta

CONFIGS = Path(__file__).parents[1] / "data" / "model_truth" / "configs"

# (configuration or model type with its class's defaults, prefix, tokens of the counted pass, source tokens)
PASSES: tuple[tuple[str, int, int, int], ...] = (
    ("meta-llama--Llama-2-7b-hf", 0, 384, 0),
    ("meta-llama--Llama-2-70b-hf", 256, 64, 0),
    ("meta-llama--Llama-2-70b-hf", 300, 1, 0),
    ("Qwen--Qwen3-32B", 0, 200, 0),
    ("Qwen--Qwen2-0.5B", 100, 28, 0),
    ("openai-community--gpt2-xl", 0, 128, 0),
    ("bigscience--bloom-560m", 0, 128, 0),
    ("CohereForAI--c4ai-command-r-v01", 0, 96, 0),
    ("tiiuae--falcon-40b", 0, 96, 0),
    ("mistralai--Mistral-7B-v0.1", 0, 5000, 0),
    ("google--gemma-2-2b", 0, 160, 0),
    ("google--gemma-3-1b-it", 0, 700, 0),
    ("mistralai--Mixtral-8x7B-v0.1", 0, 96, 0),
    ("Qwen--Qwen3-30B-A3B", 128, 32, 0),
    ("openai--gpt-oss-20b", 0, 300, 0),
    ("zai-org--GLM-4.5-Air", 0, 64, 0),
    ("deepseek-ai--DeepSeek-V2", 0, 48, 0),
    ("deepseek-ai--DeepSeek-V3", 0, 48, 0),
    ("deepseek-ai--DeepSeek-V3", 96, 32, 0),
    ("Qwen--Qwen3-Next-80B-A3B-Instruct", 0, 128, 0),
    ("Qwen--Qwen3.5-9B", 0, 128, 0),
    ("tiiuae--Falcon-H1-7B-Base", 0, 96, 0),
    ("ai21labs--AI21-Jamba-1.5-Mini", 0, 32, 0),
    ("tiiuae--falcon-mamba-7b", 0, 32, 0),
    ("nvidia--Nemotron-H-8B-Base-8K", 0, 64, 0),
    ("ibm-granite--granite-4.0-h-small", 0, 64, 0),
    ("MiniMaxAI--MiniMax-Text-01-hf", 0, 64, 0),
    ("google--recurrentgemma-2b", 0, 64, 0),
    ("LiquidAI--LFM2-1.2B", 0, 96, 0),
    ("google-bert--bert-large-uncased", 0, 128, 0),
    ("modernbert", 0, 300, 0),
    ("google-t5--t5-base", 0, 40, 200),
    ("google--flan-t5-xl", 30, 1, 150),
    ("openai--whisper-large-v3-turbo", 0, 24, 1500),
)


def exclusive(counts: dict[str, dict[Any, int]]) -> dict[str, dict[str, int]]:
    """FLOPs that each module dispatched itself, the modules inside it apart; equal layers become ``*`` and are summed."""
    own = {path: {str(op): n for op, n in ops.items()} for path, ops in counts.items() if path != "Global"}
    for path, ops in counts.items():
        parent = path.rpartition(".")[0]
        while parent and parent not in own:
            parent = parent.rpartition(".")[0]
        if parent:
            for op, flops in ops.items():
                own[parent][str(op)] -= flops
    summed: dict[str, dict[str, int]] = defaultdict(lambda: defaultdict(int))
    for path, by_op in own.items():
        for op_name, flops in by_op.items():
            if flops:
                summed[re.sub(r"\.\d+", ".*", path)][op_name] += flops
    return {path: dict(ops) for path, ops in summed.items()}


def counted(model: Any, config: Any, prefix: int, tokens: int, source: int) -> dict[str, dict[str, int]]:
    """FLOPs by module and operator of `tokens` positions after a cached prefix."""

    def ids(length: int) -> Any:
        return torch.zeros(1, length, dtype=torch.long, device="meta")

    inputs: dict[str, Any] = {}
    names = ("input_ids", "cache")
    if config.model_type == "whisper":
        inputs["input_features"] = torch.zeros(
            1, config.num_mel_bins, 2 * config.max_source_positions, device="meta", dtype=torch.bfloat16
        )
        names = ("decoder_input_ids", "cache")
    elif source:
        inputs["input_ids"] = ids(source)
        names = ("decoder_input_ids", "cache")
    with torch.no_grad():
        if prefix:
            first = model(**inputs, **{names[0]: ids(prefix)}, use_cache=True)
            inputs = {"cache": first.cache}
            if source:
                inputs["encoder_outputs"] = (first.encoder_last_hidden_state,)
        inputs[names[0]] = ids(tokens)
        counter = FlopCounterMode(display=False)
        with counter:
            model(**inputs)
    return exclusive(counter.get_flop_counts())


def row(name: str, prefix: int, tokens: int, source: int) -> dict[str, Any]:
    """One frozen answer."""
    path = CONFIGS / f"{name}.json"
    data = json.loads(path.read_text(encoding="utf-8")) if path.exists() else {"model_type": name}
    config = configuration(data["model_type"], data)
    for part in {id(part): part for part in (config, config.get_text_config(decoder=True))}.values():
        part._attn_implementation = "eager"
        part._experts_implementation = "batched_mm"
    model = on_meta(config)
    flops = counted(model, config, prefix, tokens, source)
    return {"config": name, "prefix": prefix, "tokens": tokens, "source": source, "flops": flops}


def main() -> None:
    """Freeze the counts of every pass."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("output", type=Path)
    options = parser.parse_args()
    transformers.logging.set_verbosity_error()
    if transformers.__version__ != TRANSFORMERS_VERSION:
        sys.exit(f"transformers {TRANSFORMERS_VERSION} is needed, {transformers.__version__} is installed")
    rows = [json.dumps(row(*entry)) for entry in PASSES]
    options.output.write_text("[\n" + ",\n".join(rows) + "\n]\n", encoding="utf-8")


if __name__ == "__main__":
    main()
