"""Count parameters and cache bytes of a Hugging Face configuration with transformers itself.

The reader of `config.json` is tested against what another program builds from the same file. This script is that
other program: it puts the model of a configuration on torch's meta device, where tensors have shapes but no data,
counts the parameters that it finds and sums the tensors that a forward pass leaves in the model's own cache.
It shares no formula with capplan.

It needs torch and transformers 5.24.0, and the suite does not: `tests/data/oracle_counts.jsonl` is its frozen answer.

    python -m tests.oracle.count_parameters --output tests/data/oracle_counts.jsonl
    python -m tests.oracle.count_parameters --check tests/data/model_truth/model_truth_dev.jsonl
"""

from __future__ import annotations

import argparse
import contextlib
import json
import re
import sys
import unittest.mock
from collections import Counter
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch
import transformers
from transformers.models.auto import modeling_auto
from transformers.models.auto.configuration_auto import CONFIG_MAPPING

from tests.oracle.model_types import MODEL_TYPES
from tests.oracle.variations import VARIATIONS

TRANSFORMERS_VERSION = "5.24.0"
# Types without a class of their own that are counted as another type.
READ_AS = {
    "baichuan": "llama",
    "internlm2": "llama",
    "kimi_k2": "deepseek_v3",
    "mimo": "qwen2",
    "minicpm": "llama",
    "minimax_m3": "minimax_m3_vl_text",
    "qwen": "qwen2",
    "step3p7": "step3p5",
}
# Class defaults that name no size for a part, and can't be built or run.
NO_DEFAULT_MODEL = (
    "dbrx",
    "deepseek_v2",
    "dots1",
    "hunyuan_v1_dense",
    "hunyuan_v1_moe",
    "lfm2_moe",
    "nemotron",
)
ENCODER_TYPES = ("bert", "roberta", "xlm-roberta", "modernbert")
# The text model of step3p7 has no class of its own with a head: the whole model is built and the rest left out.
TEXT_ONLY_TYPES = {"step3p5": "step3p7"}
TOWER = re.compile(r"(^|\.)(vision_\w+|visual|multi_modal_projector|mm_projector|audio_\w+|embed_vision|embed_audio)\.")
# Tokens at most that a model with recurrent states runs, one after the other.
SCANNED = 192
STATE = re.compile(r"^(conv_states|recurrent_states|linear_cache)")
ROUTED = re.compile(r"\.experts\.")
# Names under which a configuration says how many experts a token uses.
TOP_K_KEYS = ("num_experts_per_tok", "top_k_experts", "moe_topk", "moe_k", "num_experts_per_token")
# The first pattern that matches a parameter's name gives its component.
COMPONENTS: tuple[tuple[str, re.Pattern[str]], ...] = tuple(
    (name, re.compile(pattern))
    for name, pattern in (
        ("towers", TOWER.pattern),
        ("lm_head", r"^(language_model\.)?(lm_head|proj_out)\."),
        ("experts_routed", r"\.experts\."),
        ("experts_shared", r"shared_expert|shared_mlp"),
        (
            "router",
            r"\.(router|gate|gate\.wg)\.(weight|bias|layer\.weight|classifier\.weight|proj\.weight)$|moe_statics",
        ),
        ("indexer", r"\.indexer\.|index_[qk]_(proj|norm)"),
        ("norms", r"norm|ln_\w+\.|\.ln_f|layer_norm"),
        ("linear_mixer", r"\.(mamba|linear_attn|conv|rg_lru|conv_1d)\b|A_log|dt_bias|forget_gate"),
        ("attention", r"attn|attention|temporal_block"),
        ("mlp", r"mlp|feed_forward|ffn|\.fc\d|dense|DenseReluDense|intermediate|output\.dense"),
        ("embeddings", r"embed|wte|wpe|shared\.weight|embeddings"),
    )
)


@dataclass(frozen=True)
class Parameters:
    """Parameters of one model: unique tensors, a tied one once; `active` are those that one token meets."""

    total: int
    active: int
    components: dict[str, int]


def configuration(model_type: str, config: Mapping[str, Any]) -> Any:
    """The transformers configuration object of a `config.json`.

    A padding token beyond a small vocabulary, which no size depends on, is left out: the class would refuse to build.
    """
    values = {key: value for key, value in config.items() if key not in ("quantization_config", "model_type")}
    if model_type in TEXT_ONLY_TYPES:
        tied = values.get("tie_word_embeddings", False)
        values = {"text_config": {**values, "model_type": model_type}, "tie_word_embeddings": tied}
        model_type = TEXT_ONLY_TYPES[model_type]
    built = CONFIG_MAPPING[model_type].from_dict({**values, "model_type": model_type})
    text = built.get_text_config(decoder=True)
    if (text.pad_token_id or 0) >= text.vocab_size:
        text.pad_token_id = None
    return built


def model_class(config: Any, architecture: str | None = None) -> Any:
    """The class that serves this configuration: the named one, else a generating one, else the bare model."""
    if architecture is not None and hasattr(transformers, architecture):
        return getattr(transformers, architecture)
    model_type = config.model_type
    tables = [
        modeling_auto.MODEL_FOR_IMAGE_TEXT_TO_TEXT_MAPPING_NAMES,
        modeling_auto.MODEL_FOR_SPEECH_SEQ_2_SEQ_MAPPING_NAMES,
        modeling_auto.MODEL_FOR_SEQ_TO_SEQ_CAUSAL_LM_MAPPING_NAMES,
        modeling_auto.MODEL_FOR_CAUSAL_LM_MAPPING_NAMES,
    ]
    if model_type in ENCODER_TYPES:
        tables = []
    for table in [*tables, modeling_auto.MODEL_MAPPING_NAMES]:
        if model_type in table:
            names = table[model_type]
            return getattr(transformers, names if isinstance(names, str) else names[0])
    raise LookupError(f"transformers {TRANSFORMERS_VERSION} has no model for {model_type!r}")


def on_meta(config: Any, architecture: str | None = None) -> Any:
    """The model of this configuration, in bfloat16, without data."""
    with torch.device("meta"):
        model = model_class(config, architecture)._from_config(config, dtype=torch.bfloat16)
    model.tie_weights()
    return model.eval()


def unique_parameters(model: Any, keep: Callable[[str], bool] = lambda name: True) -> dict[str, Any]:
    """Named parameters, a shared tensor under its first name only."""
    return {name: tensor for name, tensor in model.named_parameters() if keep(name)}


def component(name: str) -> str:
    """The part of the model that a parameter's name belongs to."""
    return next((part for part, pattern in COMPONENTS if pattern.search(name)), "other")


def experts_used(config: Any) -> int | list[int]:
    """How many routed experts a token uses (a list where it differs by layer)."""
    text = config.get_text_config(decoder=True)
    for owner in (text, getattr(text, "ffn_config", None)):
        for key in (*TOP_K_KEYS, "moe_top_k"):
            value = getattr(owner, key, None)
            if value is not None:
                return value  # type: ignore[no-any-return]
    raise LookupError("no key says how many experts a token uses")


def experts_held(config: Any) -> int:
    """How many routed experts one layer holds in one tensor whose first axis isn't the experts."""
    return int(config.ffn_config.moe_num_experts)


def idle_parameters(config: Any, parameters: Mapping[str, Any]) -> int:
    """Parameters of the routed experts that one token leaves out: (E - k)/E of each expert tensor.

    LongCat's token chooses among E experts and Z that pass it on: of its k it meets k E/(E + Z) on average, of which
    the whole ones count.
    """
    idle = 0
    for name, tensor in parameters.items():
        if not ROUTED.search(name) or "shared" in name:
            continue
        held = tensor.shape[0] if config.model_type != "dbrx" else experts_held(config)
        used = experts_used(config)
        if isinstance(used, list):
            used = used[int(re.search(r"layers\.(\d+)\.", name).group(1))]  # type: ignore[union-attr]
        if config.model_type == "longcat_flash":
            used = used * config.n_routed_experts // (config.n_routed_experts + config.zero_expert_num)
        idle += tensor.numel() // held * (held - min(used, held))
    return idle


def count(model: Any, config: Any, text_only: bool = False) -> Parameters:
    """Parameters in total, active per token (towers aside, the input embedding included) and by component."""
    parameters = unique_parameters(model, (lambda name: not TOWER.search(name)) if text_only else (lambda name: True))
    parts: Counter[str] = Counter()
    for name, tensor in parameters.items():
        parts[component(name)] += tensor.numel()
    total = sum(parts.values())
    active = total - parts["towers"] - idle_parameters(config, parameters)
    return Parameters(total, active, dict(sorted(parts.items())))


def cache_tensors(layer: Any) -> dict[str, Any]:
    """Every tensor with elements that a cache layer keeps, by name."""
    found: dict[str, Any] = {}
    for name, value in vars(layer).items():
        if name.startswith("_") or name == "cumulative_length":
            continue
        entries = value.items() if isinstance(value, Mapping) else [(None, value)]
        for key, entry in entries:
            if isinstance(entry, torch.Tensor) and entry.numel():
                found[name if key is None else f"{name}[{key}]"] = entry
    return found


def recurrent_block_tensors(block: Any) -> dict[str, Any]:
    """RecurrentGemma keeps its state in the module and not in the cache."""
    return {"conv_states[0]": block.conv1d_state, "recurrent_states[0]": block.rg_lru.recurrent_states}


def pass_through(hidden_states: Any, *routing: Any, **options: Any) -> Any:
    """Experts without work: which tokens they get depends on data, and the shape that they return doesn't."""
    return hidden_states


def forward(model: Any, config: Any, length: int) -> list[dict[str, Any]]:
    """Run `length` tokens without data, and return the tensors that each layer kept for the next token."""
    for name, module in model.named_modules():
        if re.search(r"(^|\.)experts$", name):
            module.forward = pass_through
    text = config.get_text_config(decoder=True)
    if text.model_type == "step3p5" and text.sliding_window is None:
        text.sliding_window = length  # its mask for sliding layers is made though no layer slides
    tokens = torch.zeros(1, length, dtype=torch.long, device="meta")
    # A cache without attention layers can't tell how many tokens it holds; before the first, it holds none.
    stateful = set(getattr(text, "layer_types", None) or ()) == {"linear_attention"}
    no_tokens = unittest.mock.patch.multiple(
        transformers.Cache,
        get_seq_length=lambda *_, **__: 0,
        get_mask_sizes=lambda *_, **__: (length, 0),
    )
    with torch.no_grad(), no_tokens if stateful else contextlib.nullcontext():
        if config.model_type == "whisper":
            frames = torch.zeros(1, config.num_mel_bins, 2 * config.max_source_positions, device="meta")
            targets = tokens[:, : config.max_target_positions]
            cache = model(input_features=frames.bfloat16(), decoder_input_ids=targets, use_cache=True).cache
        elif config.model_type == "t5":
            cache = model(input_ids=tokens, decoder_input_ids=tokens, use_cache=True).cache
        elif config.model_type == "recurrent_gemma":
            cache = transformers.DynamicCache(config=config)
            decoder = model.get_decoder()
            decoder._setup_cache(config, 1, torch.device("meta"), torch.bfloat16)
            decoder(input_ids=tokens, use_cache=True, cache=cache)
            blocks = [layer.temporal_block for layer in decoder.layers]
            return [
                {**cache_tensors(layer), "window": layer.sliding_window}
                if kind == "sliding_attention"
                else recurrent_block_tensors(block)
                for layer, block, kind in zip(cache.layers, blocks, config.layer_types, strict=True)
            ]
        else:
            cache = model.get_decoder()(input_ids=tokens, use_cache=True).cache
    if isinstance(cache, transformers.EncoderDecoderCache):
        layers = [*cache.self_attention_cache.layers, *cache.cross_attention_cache.layers]
    else:
        layers = cache.layers
    kept = [{**cache_tensors(layer), "window": getattr(layer, "sliding_window", None)} for layer in layers]
    states = getattr(cache, "linear_cache", [])
    # A cache of ordinary layers ends with the last of them, where states may stand in layers after it.
    kept += [{"window": None} for _ in range(len(states) - len(kept))]
    for tensors, state in zip(kept, states, strict=False):
        if isinstance(state, torch.Tensor):
            tensors["linear_cache"] = state
    return kept


def layer_bytes(tensors: Mapping[str, Any], config: Any, run: int, length: int) -> tuple[int, int, int]:
    """Token bytes by the architecture at `length`, token bytes as transformers keeps them after `run`, and states.

    A sliding layer counts min(S, window) tokens where transformers keeps window - 1; Falcon's heads are
    `num_kv_heads` where transformers keeps them expanded. DeepSeek-V4 stays as transformers keeps it.
    """
    held = sum(tensor.nbytes for name, tensor in tensors.items() if not (name == "window" or STATE.search(name)))
    states = sum(tensor.nbytes for name, tensor in tensors.items() if STATE.search(name))
    counted = held
    if "keys" in tensors and config.model_type != "deepseek_v4":
        tokens = tensors["keys"].shape[-2]
        window = tensors["window"]
        counted = held // tokens * (tokens + length - run if window is None else min(length, window))
        if config.model_type == "falcon":
            counted = counted // tensors["keys"].shape[1] * falcon_heads(config)
    return counted, held, states


def falcon_heads(config: Any) -> int:
    """KV heads of Falcon: many in the new decoder, one with multi-query attention, else one a query head."""
    if config.new_decoder_architecture:
        return int(config.num_kv_heads)
    return 1 if config.multi_query else int(config.num_attention_heads)


def describe_layer(tensors: Mapping[str, Any]) -> str:
    """One line for a layer's tensors: names, shapes, dtypes and the window."""
    parts = [
        f"{name} {list(tensor.shape)} {str(tensor.dtype).removeprefix('torch.')}"
        for name, tensor in tensors.items()
        if name != "window"
    ]
    if tensors.get("window") is not None:
        parts.append(f"window {tensors['window']}")
    return "; ".join(parts) or "nothing"


def observe(model: Any, config: Any, lengths: Sequence[int]) -> dict[str, Any]:
    """KV and state bytes of one sequence at each length, and what the layers hold at the first.

    A model with recurrent states scans its tokens one by one, and MPT and GPT-Neo have no positions beyond their
    longest: beyond such a limit the layers are those at the limit, with as many more tokens as the length asks for.
    """
    rows: dict[str, dict[str, int]] = {}
    first = forward(model, config, min(lengths[0], SCANNED))
    limit = SCANNED if any(STATE.search(name) for tensors in first for name in tensors) else lengths[-1]
    if config.model_type in ("mpt", "gpt_neo"):
        limit = config.max_seq_len if config.model_type == "mpt" else config.max_position_embeddings
    for length in lengths:
        run = min(length, limit)
        kept = forward(model, config, run)
        counted = [layer_bytes(tensors, config, run, length) for tensors in kept]
        kv, held, states = (sum(column) for column in zip(*counted, strict=True))
        rows[str(length)] = {"kv": kv, "state": states, "total": kv + states}
        if run == length:
            rows[str(length)]["transformers_keeps"] = held + states
    return {
        "bytes": rows,
        "observed": f"forward pass without data of up to {min(limit, lengths[-1])} tokens",
        "layers": {f"{min(lengths[0], SCANNED)} tokens": dict(Counter(describe_layer(tensors) for tensors in first))},
    }


def named_configurations() -> Iterator[tuple[str, str, dict[str, Any], tuple[int, ...]]]:
    """Identifier, model type, configuration and lengths of everything that is frozen."""
    for model_type in MODEL_TYPES:
        if model_type in CONFIG_MAPPING and model_type not in NO_DEFAULT_MODEL:
            yield f"{model_type}/class-default", model_type, {}, (4096, 8192, 65536)
    for model_type, configs in VARIATIONS.items():
        for number, config in enumerate(configs, 1):
            yield f"{model_type}/variation-{number}", model_type, config, (48, 192, 640)


def frozen_row(name: str, model_type: str, config: dict[str, Any], lengths: tuple[int, ...]) -> dict[str, Any]:
    """What the tests compare with: counts and bytes of one configuration.

    Bytes are those of one sequence in bfloat16, T5's source as long as its target; an encoder keeps nothing.
    """
    built = configuration(model_type, config)
    model = on_meta(built)
    text_only = model_type in TEXT_ONLY_TYPES
    parameters = count(model, built, text_only)
    row: dict[str, Any] = {
        "id": name,
        "config": {"model_type": model_type, **config},
        "class": type(model).__name__,
        "params_total": parameters.total,
        "params_active": parameters.active,
        "components": parameters.components,
    }
    if model_type == "longcat_flash":
        row["params_identity_experts"] = identity_expert_parameters(built, unique_parameters(model))
    if model_type in ENCODER_TYPES:
        return {**row, "bytes": {str(length): {"kv": 0, "state": 0, "total": 0} for length in lengths}}
    return {**row, **observe(model, built, lengths)}


def identity_expert_parameters(config: Any, parameters: Mapping[str, Any]) -> int:
    """Parameters that LongCat's class allocates for experts that pass their input on, and no checkpoint has."""
    return sum(
        tensor[config.n_routed_experts :].numel()
        for name, tensor in parameters.items()
        if name.endswith("experts.gate_up_proj")
    )


def check(truth: Path) -> int:
    """Count the configurations of `tests/data/model_truth` again and print the rows that differ; their number."""
    wrong = 0
    for line in truth.read_text(encoding="utf-8").splitlines():
        row = json.loads(line)
        data = json.loads((truth.parent / row["config_file"]).read_text(encoding="utf-8"))
        model_type = READ_AS.get(row["model_type"], row["model_type"])
        if model_type not in CONFIG_MAPPING:
            continue
        if row["model_type"] == "qwen":
            data = {**data, "intermediate_size": data["intermediate_size"] // 2, "num_key_value_heads": None}
        lengths = tuple(int(length) for length in row["kv"].get("totals_batch1") or (4096,))
        got = frozen_row(row["id"], model_type, data, lengths)
        differs = {key: (got[key], row[key]) for key in ("params_total", "params_active") if got[key] != row[key]}
        for length, totals in (row["kv"].get("totals_batch1") or {}).items():
            if got["bytes"][length]["total"] != totals["bf16"]:
                differs[f"bytes at {length}"] = (got["bytes"][length]["total"], totals["bf16"])
        if differs:
            wrong += 1
            print(row["id"], row["params_flag"], row["kv"]["flag"], differs)
    return wrong


def main() -> None:
    """Freeze the counts, or check the published rows."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--output", type=Path, help="write the frozen rows here")
    parser.add_argument("--check", type=Path, help="a model_truth JSON Lines file to count again")
    options = parser.parse_args()
    transformers.logging.set_verbosity_error()
    if transformers.__version__ != TRANSFORMERS_VERSION:
        sys.exit(f"transformers {TRANSFORMERS_VERSION} is needed, {transformers.__version__} is installed")
    if options.check is not None:
        print(check(options.check), "rows differ")
    if options.output is not None:
        rows = [json.dumps(frozen_row(*entry), separators=(",", ":")) for entry in named_configurations()]
        options.output.write_text("\n".join(rows) + "\n", encoding="utf-8")


if __name__ == "__main__":
    main()
