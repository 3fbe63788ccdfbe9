"""EXAONE 4: norms after the sublayers, and in its larger size layers that slide."""

from __future__ import annotations

from typing import Any

from capplan.describe.config import Config
from capplan.describe.families.common import (
    FULL_OR_SLIDING,
    attention,
    decoder,
    dense,
    layer_types,
    sliding_every,
    sliding_layers,
)


def exaone4(config: Config) -> dict[str, Any]:
    """Norms on each query and key head; where layers slide, the full ones have no rotary embedding."""
    window = config.optional_size("sliding_window")
    types = layer_types(config, FULL_OR_SLIDING, lambda layers: _pattern(config, window, layers))
    config.ignore("sliding_window_pattern")
    full = {"rotary_dim": None if window is None else 0}
    fields = attention(config, qk_norm="head")
    return decoder(config, sliding_layers(config, types, fields, window, full=full, ffn=(dense(config),)))


def _pattern(config: Config, window: int | None, layers: int) -> list[str]:
    """Layer types by ``sliding_window_pattern``: a period, or letters such as ``LLLG`` (local, global).

    With letters the last layer is always global.
    """
    if window is None:
        return ["full_attention"] * layers
    pattern = config.raw("sliding_window_pattern")
    if not isinstance(pattern, str):
        return sliding_every(config.size("sliding_window_pattern"))(layers)
    if not pattern or set(pattern) - {"L", "G"}:
        config.invalid("sliding_window_pattern", f"a pattern in letters has L and G alone, not {pattern!r}")
    local = [pattern[index % len(pattern)] == "L" and index < layers - 1 for index in range(layers)]
    return ["sliding_attention" if slides else "full_attention" for slides in local]
