"""What most decoders share: how attention, feed-forwards and embeddings are named in a configuration.

Readers build plain dictionaries and description parts; `capplan.describe.huggingface.build` validates the whole.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any, TypeVar

from capplan.describe.config import Config
from capplan.describe.layer_formula import layer_formula
from capplan.describe.model import Attention, Block, Dense, MixtureOfExperts

PartType = TypeVar("PartType")

QKV = ("q", "k", "v")
QKVO = ("q", "k", "v", "o")
MLP = ("gate", "up", "down")
PLAIN_MLP = ("up", "down")
FULL_OR_SLIDING = ("full_attention", "sliding_attention")
MAX_LAYERS = 4096
LEGACY_LAYER_TYPES = {"attention": "full_attention", "mamba": "linear_attention"}


def head_dim(config: Config, heads: int, hidden: int) -> int:
    """``head_dim`` where the key has a value, else ``hidden / heads``, which must divide."""
    given = config.optional_size("head_dim")
    return even_heads(config, heads, hidden) if given is None else given


def even_heads(config: Config, heads: int, hidden: int) -> int:
    """``hidden / heads``, which must divide."""
    if hidden % heads:
        config.invalid("num_attention_heads", f"hidden_size {hidden} does not divide by {heads} heads")
    return hidden // heads


def multi_head(config: Config, heads: int, hidden: int, **features: Any) -> dict[str, Any]:
    """Attention with a KV head a query head, all together as wide as the hidden state, as fields of `Attention`.

    For classes that know no ``num_key_value_heads``: it changes nothing there.
    """
    config.ignore("num_key_value_heads")
    fields = {"heads": heads, "kv_heads": heads, "head_dim": even_heads(config, heads, hidden)}
    return {**fields, **features}


def switched(config: Config, key: str, parts: tuple[str, ...]) -> tuple[str, ...]:
    """`parts` where the flag `key` is set (absent from file and class: unset), else nothing: for biases."""
    return parts if config.flag(key, default=False) else ()


def rotary_dim(
    config: Config, head_dim: int, *names: str, default: float = 1.0, layer_type: str | None = None
) -> int | None:
    """Rotated elements of a head, ``partial_rotary_factor * head_dim``; None where all of it rotates.

    The factor stands in ``rope_parameters`` (formerly ``rope_scaling``), there under `layer_type`, or beside it.
    """
    rope = config.data.get("rope_parameters") or config.data.get("rope_scaling")
    if isinstance(rope, dict) and isinstance(rope.get(layer_type), dict):
        rope = rope[layer_type]
    factor = rope.get("partial_rotary_factor") if isinstance(rope, dict) else None
    if factor is None:
        factor = config.number(*(names or ("partial_rotary_factor",)), default=default)
    if factor is None or factor == 1:
        return None
    if isinstance(factor, bool) or not isinstance(factor, (int, float)) or not 0 <= factor < 1:
        config.invalid("partial_rotary_factor", f"the rotated part of a head must be between 0 and 1, not {factor!r}")
    return int(head_dim * factor)


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


def make(config: Config, part: type[PartType], fields: dict[str, Any]) -> PartType:
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


def layer_types(config: Config, valid: Sequence[str], default: Callable[[int], list[str]], *keys: str) -> list[str]:
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


def sliding_every(period: int) -> Callable[[int], list[str]]:
    """Layer types in which each `period`-th layer attends to everything and the others slide."""
    return lambda layers: ["sliding_attention" if (index + 1) % period else "full_attention" for index in range(layers)]


def sliding_layers(
    config: Config,
    types: Sequence[str],
    fields: dict[str, Any],
    window: int | None,
    *,
    full: dict[str, Any] | None = None,
    **block: Any,
) -> dict[str, Any]:
    """``blocks`` and ``layers`` of a stack whose layers see everything or slide, in the order of `types`.

    Args:
        config: the configuration, for errors.
        types: ``full_attention`` or ``sliding_attention``, one a layer.
        fields: attention's fields that both kinds share.
        window: the sliding layers' window.
        full: what differs in the full layers.
        block: the rest of each block: feed-forward, norms.
    """
    if window is None and "sliding_attention" in types:
        config.invalid("sliding_window", "layers slide (layer_types), but no sliding_window is in use")
    variants = {
        "full_attention": ("full", {**fields, **(full or {})}),
        "sliding_attention": ("sliding", {**fields, "window": window}),
    }
    blocks = {
        kind: (name, Block(mixer=(attention_part(config, attention_fields),), **block))
        for kind, (name, attention_fields) in variants.items()
        if kind in types
    }
    return layered([blocks[kind] for kind in types])


def decoder(config: Config, stack: dict[str, Any], **fields: Any) -> dict[str, Any]:
    """The fields of a decoder-only `ModelSpec` around its layers: hidden size, embedding, positions.

    What `fields` (and its ``embedding``) name is not read from llama's keys.
    """
    named = fields.pop("embedding", {})
    embedding = {
        "vocab_size": named["vocab_size"] if "vocab_size" in named else config.size("vocab_size"),
        "tied": named["tied"] if "tied" in named else config.flag("tie_word_embeddings", default=True),
    }
    if "hidden_size" not in fields:
        fields["hidden_size"] = config.size("hidden_size")
    if "max_positions" not in fields:
        fields["max_positions"] = config.optional_size("max_position_embeddings")
    return {"embedding": {**embedding, **named}, **stack, **fields}


def never_tied(config: Config) -> bool:
    """False, for a class that keeps its head apart from the token table whatever ``tie_word_embeddings`` says."""
    if config.flag("tie_word_embeddings", default=False):
        config.assume("an output head of its own", "its class never ties it, whatever tie_word_embeddings says")
    return False
