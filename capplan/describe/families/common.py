"""What most decoders share: how attention, feed-forwards and embeddings are named in a configuration.

Readers build plain dictionaries and description parts; `capplan.describe.huggingface.build` validates the whole.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

from capplan.describe.config import Config
from capplan.describe.layer_formula import layer_formula
from capplan.describe.model import Attention, Block, Dense, MixtureOfExperts

QKV = ("q", "k", "v")
QKVO = ("q", "k", "v", "o")
MLP = ("gate", "up", "down")
MAX_LAYERS = 4096
LEGACY_LAYER_TYPES = {"attention": "full_attention", "mamba": "linear_attention"}


def head_dim(config: Config, heads: int, hidden: int) -> int:
    """``head_dim`` where the key has a value, else ``hidden / heads``, which must divide."""
    given = config.optional_size("head_dim")
    if given is not None:
        return given
    if hidden % heads:
        config.invalid("num_attention_heads", f"hidden_size {hidden} does not divide by {heads} heads")
    return hidden // heads


def attention(config: Config, **features: Any) -> dict[str, Any]:
    """Attention under llama's key names, as fields of `Attention`; `features` adds to them or overrides them.

    ``num_key_value_heads`` absent or null means one KV head a query head.
    """
    hidden = config.size("hidden_size")
    heads = config.size("num_attention_heads")
    fields: dict[str, Any] = {
        "heads": heads,
        "kv_heads": config.optional_size("num_key_value_heads") or heads,
        "head_dim": head_dim(config, heads, hidden),
    }
    return {**fields, **features}


def dense(config: Config, **features: Any) -> Dense:
    """A gated feed-forward of ``intermediate_size``; `features` adds or overrides."""
    width = features.pop("intermediate_size", None) or config.size("intermediate_size")
    return make(config, Dense, {"intermediate_size": width, **features})


def moe(config: Config, **fields: Any) -> MixtureOfExperts:
    """A mixture of experts from its fields."""
    return make(config, MixtureOfExperts, fields)


def attention_part(config: Config, fields: dict[str, Any]) -> Attention:
    """The validated `Attention`."""
    return make(config, Attention, fields)


def make(config: Config, part: type[Any], fields: dict[str, Any]) -> Any:
    """A description part; sizes that contradict each other are the file's mistake."""
    from pydantic import ValidationError

    from capplan.describe.parts import validated

    try:
        return validated(part, fields)
    except ValidationError as error:
        first = error.errors(include_url=False)[0]
        detail = str(first["msg"]).removeprefix("Value error, ")
        config.invalid(".".join(str(name) for name in first["loc"]) or getattr(part, "__name__", "layer"), detail)


def layered(blocks: Sequence[tuple[str, Block]]) -> dict[str, Any]:
    """``blocks`` and ``layers`` of a stack from one (name, block) a layer; equal names are one block."""
    named: dict[str, Block] = {}
    for name, block in blocks:
        named.setdefault(name, block)
    return {"blocks": named, "layers": layer_formula([name for name, _ in blocks])}


def uniform(config: Config, block: Block, *layer_keys: str) -> dict[str, Any]:
    """``blocks`` and ``layers`` of a stack whose layers are all alike."""
    return {"blocks": {"layer": block}, "layers": f"{layer_count(config, *layer_keys)}*layer"}


def layer_count(config: Config, *keys: str) -> int:
    """The number of layers, which is bounded so that a wrong figure cannot fill the memory."""
    names = keys or ("num_hidden_layers",)
    layers = config.size(*names)
    if layers > MAX_LAYERS:
        config.invalid(names[0], f"{layers} layers are more than {MAX_LAYERS}")
    return layers


def layer_types(
    config: Config, valid: Sequence[str], default: Callable[[int], list[str]], *keys: str
) -> list[str]:
    """The kind of each layer: the list ``layer_types`` (or under `keys`), or `default` of the number of layers.

    Older files say ``attention`` and ``mamba`` where newer ones say ``full_attention`` and ``linear_attention``.
    """
    names = keys or ("layer_types",)
    layers = layer_count(config)
    types = config.items(*names, length=layers)
    if types is None:
        return default(layers)
    types = [LEGACY_LAYER_TYPES.get(kind, kind) if isinstance(kind, str) else kind for kind in types]
    for kind in types:
        if kind not in valid:
            config.refuse(names[0], f"the layer type {kind!r} is not supported", f"one of {', '.join(valid)}")
    return types


def decoder(config: Config, stack: dict[str, Any], **fields: Any) -> dict[str, Any]:
    """The fields of a decoder-only `ModelSpec` around its layers: hidden size, embedding, positions."""
    embedding = {
        "vocab_size": config.size("vocab_size"),
        "tied": config.flag("tie_word_embeddings", default=True),
        **fields.pop("embedding", {}),
    }
    return {
        "hidden_size": config.size("hidden_size"),
        "embedding": embedding,
        "max_positions": config.optional_size("max_position_embeddings"),
        **stack,
        **fields,
    }
