"""Pure state-space models: Mamba, Falcon-Mamba and Mamba-2; one mixer and one norm a layer, no attention."""

from __future__ import annotations

from math import ceil
from typing import Any

from capplan.describe.config import Config
from capplan.describe.families.common import decoder, make, uniform
from capplan.describe.model import Block, Mamba, Mamba2

OTHER_NAMES = (
    "d_model",
    "d_inner",
    "n_layer",
    "ssm_cfg",
    "rms_norm",
    "fused_add_norm",
    "pad_vocab_size_multiple",
    "use_mambapy",
    "use_falcon_mambapy",
    "use_associative_scan",
)
"""Keys of the original code that stand beside transformers' own, and choices of kernels."""
STATE_DTYPES = {"float32": "fp32", "float16": "fp16", "bfloat16": "bf16"}


def mamba(config: Config) -> dict[str, Any]:
    """Mamba-1; the inner width is ``intermediate_size`` where a release has the key, else ``expand x hidden_size``.

    Falcon-Mamba's norms on dt, B and C have no weights, so that it holds the same tensors.
    """
    config.ignore(*OTHER_NAMES)
    hidden = config.size("hidden_size")
    expand = config.size("expand")
    mixer = make(
        config,
        Mamba,
        {
            "inner": config.optional_size("intermediate_size") or expand * hidden,
            "state": config.size("state_size"),
            "conv_kernel": config.size("conv_kernel"),
            "dt_rank": time_step_rank(config, "time_step_rank"),
            "conv_bias": config.flag("use_conv_bias"),
            "projection_bias": config.flag("use_bias"),
        },
    )
    return decoder(config, uniform(config, Block(mixer=(mixer,), norms=1)))


def mamba2(config: Config) -> dict[str, Any]:
    """Mamba-2: heads of `head_dim` channels, B and C in `n_groups`, a gated norm before the output."""
    config.ignore("chunk_size", "norm_before_gate", "time_step_rank", "intermediate_size")
    heads, head_dim = config.size("num_heads"), config.size("head_dim")
    check_inner(config, "num_heads", config.size("expand") * config.size("hidden_size"), heads, head_dim)
    mixer = make(
        config,
        Mamba2,
        {
            "heads": heads,
            "head_dim": head_dim,
            "groups": config.size("n_groups"),
            "state": config.size("state_size"),
            "conv_kernel": config.size("conv_kernel"),
            "conv_bias": config.flag("use_conv_bias"),
            "projection_bias": config.flag("use_bias"),
            "norm": config.flag("rms_norm", default=True),
        },
    )
    return decoder(config, uniform(config, Block(mixer=(mixer,), norms=1)))


def time_step_rank(config: Config, key: str) -> int:
    """Rank of the step size's projection: a number, or ``auto``, which is a sixteenth of the hidden size."""
    if config.raw(key) == "auto":
        return ceil(config.size("hidden_size") / 16)
    return config.size(key)


def check_inner(config: Config, key: str, inner: int, heads: int, head_dim: int) -> None:
    """The heads of a Mamba-2 mixer must add up to its inner width."""
    if heads * head_dim != inner:
        config.invalid(key, f"{heads} heads of {head_dim} are not the mixer's inner width of {inner}")


def prefixed_mamba2(config: Config, inner: int, **features: Any) -> dict[str, Any]:
    """Mamba-2 under the keys ``mamba_*`` of hybrid models, as fields; ``mamba_d_head`` may be ``auto``."""
    config.ignore("mamba_chunk_size")
    heads = config.size("mamba_n_heads")
    head_dim = inner // heads if config.raw("mamba_d_head") == "auto" else config.size("mamba_d_head")
    check_inner(config, "mamba_n_heads", inner, heads, head_dim)
    return {
        "heads": heads,
        "head_dim": head_dim,
        "groups": config.size("mamba_n_groups"),
        "state": config.size("mamba_d_state"),
        "conv_kernel": config.size("mamba_d_conv"),
        "conv_bias": config.flag("mamba_conv_bias"),
        "projection_bias": config.flag("mamba_proj_bias"),
        **features,
    }


def state_dtype(config: Config, key: str) -> str:
    """The dtype of recurrent states, which a release may name; float32 unless told."""
    name = config.text(key, default=None) or "float32"
    if name not in STATE_DTYPES:
        config.refuse(key, f"the state dtype {name!r} is not supported", f"one of {', '.join(STATE_DTYPES)}")
    return STATE_DTYPES[name]


def engine_state_dtype(config: Config, key: str) -> str | None:
    """The dtype of recurrent states that a release asks engines for; None where it names none."""
    return state_dtype(config, key) if config.text(key, default=None) else None
