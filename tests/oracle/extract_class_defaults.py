"""Write `capplan/describe/class_defaults.json`: what transformers assumes of a key that a `config.json` leaves out.

The values are those that the configuration classes declare, before `__post_init__` derives others from them: a null
here means that the class derives the value (or has none), and `derived` names the keys that it derives.

    python -m tests.oracle.extract_class_defaults capplan/describe/class_defaults.json
"""

from __future__ import annotations

import argparse
import ast
import dataclasses
import inspect
import json
import re
import textwrap
from pathlib import Path
from typing import Any

import transformers
from transformers.configuration_utils import PreTrainedConfig, SubConfigSpec
from transformers.models.auto.configuration_auto import CONFIG_MAPPING

from tests.oracle.model_types import MODEL_TYPES, REMOTE_DEFAULTS, SAME_AS

EXTRACTED = "2026-11-30"
# Keys that change no size in any class: generation, initialisation, dropout, scaling, rope, bookkeeping.
NOISE = re.compile(
    r"token_ids?$|token_index$|dropout|pdrop$|drop_rate$|layerdrop|_eps$|epsilon$|initializer|_init$|^init_"
    r"|^rope_|_rope$|rope_(theta|scaling|parameters|interleave|freq_base|ratio)|theta$|rotary|projector_hidden_act$|_act_fn$|activation"
    r"|_loss|loss_|_coef$|_factor$|scaling|softcap|^output_(hidden|attentions|router)|return_dict|^use_cache$|torch_dtype"
    r"|^dtype$|jitter|clip_qkv|^(?!block_ffn_dim).*_multipliers?$|^time_step_(min|max|floor|limit|scale|init_scheme)$|_dt_(min|max|limit)$"
    r"|^architectures$|^id2label$|^label2id$|^problem_type$|^transformers_version$|^chunk_size_feed_forward$"
    r"|^is_encoder_decoder$|pretraining_tp|suppress_tokens|^median_|^classifier|^summary_|sparse_prediction"
    r"|deterministic|norm_topk_prob|partial_rotary|^base_|^default_|^model_type$|^attribute_map$"
    r"|^use_(mamba_kernels|mambapy|falcon_mambapy|kernels|associative_scan)$|query_pre_attn|^floor_scale|^attn_(temp|scale)"
    r"|^logit_|^scoring_func$|^num_logits_to_keep$|^slow_but_exact$|^rescale|_in_fp32$|^tie_encoder_decoder$"
    r"|^(topk|n)_group$"
)


def declared(config_class: type) -> dict[str, Any]:
    """Defaults that the class declares, fields and plain class attributes alike."""
    values: dict[str, Any] = {}
    for field in dataclasses.fields(config_class):
        if field.default is not dataclasses.MISSING:
            values[field.name] = field.default
        elif field.default_factory is not dataclasses.MISSING:
            values[field.name] = field.default_factory()
    for owner in reversed(config_class.__mro__):
        if not (issubclass(owner, PreTrainedConfig) and owner is not PreTrainedConfig):
            continue
        for name, value in vars(owner).items():
            if not name.startswith("_") and isinstance(value, (bool, int, float, str)) and name not in values:
                values[name] = value
    return values


def keyword_defaults(config_class: type) -> dict[str, Any]:
    """Keys that `__post_init__` takes from the file though the class doesn't declare them: `kwargs.pop(key, default)`."""
    if "__post_init__" not in vars(config_class):
        return {}
    source = textwrap.dedent(inspect.getsource(vars(config_class)["__post_init__"]))
    found: dict[str, Any] = {}
    for node in ast.walk(ast.parse(source)):
        match node:
            case ast.Call(
                func=ast.Attribute(value=ast.Name(id="kwargs"), attr="pop" | "get"),
                args=[ast.Constant(value=str(key)), ast.Constant(value=value)],
            ):
                found[key] = value
    return found


def sizes_only(values: dict[str, Any], sub_configs: set[str]) -> dict[str, Any]:
    """The values that JSON can hold and that may change a size."""
    return {
        key: list(value) if isinstance(value, tuple) else value
        for key, value in sorted(values.items())
        if key not in sub_configs and not NOISE.search(key)
    }


def nested_specifications(config_class: Any) -> dict[str, Any]:
    """Specifications of the nested configurations; classes of an older form name the nested class alone."""
    if config_class.sub_configs_defaults:
        return dict(config_class.sub_configs_defaults)
    nested = vars(config_class).get("sub_configs") or {}
    return {
        key: SubConfigSpec(config_class=inner, model_type=f"{config_class.model_type}.{key}")
        for key, inner in nested.items()
    }


def nested_class(spec: Any) -> Any:
    """The class of a nested configuration that doesn't name its own type."""
    return spec.config_class if issubclass(spec.config_class, PreTrainedConfig) else CONFIG_MAPPING[spec.model_type]


def sub_specifications(config_class: Any) -> dict[str, dict[str, Any]]:
    """Nested configurations: their type, whether they may be missing, and their values where they are absent."""
    found: dict[str, dict[str, Any]] = {}
    for key, spec in sorted(nested_specifications(config_class).items()):
        entry: dict[str, Any] = {"model_type": spec.model_type, "optional": spec.optional}
        if not issubclass(spec.config_class, PreTrainedConfig):
            entry["any_type"] = True
        if spec.init_kwargs:
            entry["when_absent"] = sizes_only(dict(spec.init_kwargs), {"model_type"})
        found[key] = entry
    return found


def derived_keys(config_class: Any, values: dict[str, Any]) -> list[str]:
    """Keys declared null that `__post_init__` fills in."""
    instance = config_class()
    return [key for key, value in values.items() if value is None and getattr(instance, key, None) is not None]


def reachable(model_types: list[str]) -> dict[str, Any]:
    """Configuration classes of the given types and of all configurations nested in them, by type."""
    found: dict[str, Any] = {}
    waiting = [(name, CONFIG_MAPPING[name]) for name in [*model_types, *SAME_AS.values()] if name in CONFIG_MAPPING]
    while waiting:
        model_type, config_class = waiting.pop()
        if model_type not in found:
            found[model_type] = config_class
            waiting += [(spec.model_type, nested_class(spec)) for spec in nested_specifications(config_class).values()]
    return found


def extract() -> dict[str, Any]:
    """The whole document: defaults, aliases, nested configurations, derived keys and sources."""
    defaults: dict[str, Any] = {}
    aliases: dict[str, Any] = {}
    nested: dict[str, Any] = {}
    derived: dict[str, Any] = {}
    sources: dict[str, str] = {}
    for model_type, config_class in reachable(MODEL_TYPES).items():
        sub_configs = sub_specifications(config_class)
        values = sizes_only(declared(config_class), set(sub_configs))
        defaults[model_type] = {**values, **sizes_only(keyword_defaults(config_class), set(values))}
        sources[model_type] = f"transformers {transformers.__version__} {config_class.__name__}"
        if config_class.attribute_map:
            aliases[model_type] = dict(sorted(config_class.attribute_map.items()))
        if sub_configs:
            nested[model_type] = sub_configs
        if names := derived_keys(config_class, values):
            derived[model_type] = names
    for model_type, other in SAME_AS.items():
        defaults[model_type] = defaults[other]
        sources[model_type] = f"{sources[other]}, whose sizes this type takes"
        for table in (aliases, derived):
            if other in table:
                table[model_type] = table[other]
    defaults["mimo"] = {**defaults["mimo"], "num_nextn_predict_layers": 0}
    for model_type, (values, source) in REMOTE_DEFAULTS.items():
        defaults[model_type] = dict(sorted(values.items()))
        sources[model_type] = source
    return {
        "defaults": defaults,
        "aliases": aliases,
        "sub_configs": nested,
        "derived": derived,
        "sources": sources,
    }


def dumped(document: dict[str, Any]) -> str:
    """JSON with one model type a line, in a fixed order."""
    header = {
        "about": "Defaults of configuration classes before __post_init__; a key that a config.json leaves out has the "
        "value here. Written by tests/oracle/extract_class_defaults.py.",
        "transformers": transformers.__version__,
        "extracted": EXTRACTED,
        "without_defaults": [name for name in MODEL_TYPES if name not in document["defaults"]],
    }
    sections = [json.dumps(header, indent=0)[2:-2]]
    for name, table in document.items():
        rows = ",\n".join(f"{json.dumps(key)}: {json.dumps(table[key])}" for key in sorted(table))
        sections.append(f"{json.dumps(name)}: {{\n{rows}\n}}")
    return "{\n" + ",\n".join(sections) + "\n}\n"


def main() -> None:
    """Write the file that is named on the command line."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("output", type=Path)
    parser.parse_args().output.write_text(dumped(extract()), encoding="utf-8")


if __name__ == "__main__":
    main()
