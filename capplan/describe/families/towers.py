"""Vision towers: transformer encoders of patches, and what towers of several families name alike."""

from __future__ import annotations

from typing import Any

from capplan.describe.config import Config
from capplan.describe.families.common import QKVO, make, multi_head
from capplan.describe.model import Attention, Block, Dense, Tensors


def encoder_layer(config: Config, hidden: int, heads: int, width: int, **block: Any) -> Block:
    """A layer of a ViT: attention over all patches and a feed-forward of two matrices, all with biases.

    Args:
        config: the tower's configuration, for errors.
        hidden: the hidden size.
        heads: attention heads, which divide it.
        width: the feed-forward's.
        block: the rest of the block: norms, further tensors.
    """
    sees_all = multi_head(config, heads, hidden, bias=QKVO, causal=False, cache="none")
    mlp = {"intermediate_size": width, "gated": False, "bias": ("up", "down")}
    return Block(mixer=(make(config, Attention, sees_all),), ffn=(make(config, Dense, mlp),), **block)


def tower(
    hidden: int, layers: int, layer: Block, tensors: Tensors, *, norms: int, norm: str = "layer"
) -> dict[str, Any]:
    """A tower of equal layers, with `norms` as wide as its hidden state around them and what `tensors` names."""
    return {
        "hidden_size": hidden,
        "norm": norm,
        "blocks": {"layer": layer},
        "layers": f"{layers}*layer",
        "final_norms": norms,
        "tensors": tensors,
    }


def pair(config: Config, key: str) -> tuple[int, int]:
    """A size that is one number for both directions or a list of two."""
    value = config.raw(key)
    values = value if isinstance(value, list) else [value, value]
    if len(values) != 2 or not all(isinstance(item, int) and 1 <= item <= 1 << 16 for item in values):
        config.invalid(key, f"{key} must be a whole number or a list of two, not {value!r}")
    return values[0], values[1]


def biased(name: str, rows: int, columns: int, bias: bool = True) -> Tensors:
    """A linear map's weight and bias."""
    tensors: Tensors = {f"{name}.weight": (rows, columns)}
    if bias:
        tensors[f"{name}.bias"] = (rows,)
    return tensors
