"""How engines store cached keys and values: bits an element, and what stands beside them."""

from __future__ import annotations

from dataclasses import dataclass
from fractions import Fraction

from capplan.describe.formats import element_bits
from capplan.describe.formats_plain import DTYPE_BYTES

FLAG = "--kv-cache-dtype"
_SAME_AS: dict[str, str] = {
    "fp8_inc": "fp8_e4m3",
    "fp8_ds_mla": "fp8_e4m3",
    "fp8_per_token_head": "fp8_e4m3",
    "int8_per_token_head": "int8",
    "bfloat16": "bf16",
}
_NVFP4_BITS = Fraction(9, 2)
"""4 bits and one 8-bit scale for each 16 elements. Source: vLLM, vllm/v1/kv_cache_interface.py (nvfp4 layout)."""
_SCALE_BYTES = 4
_AUTO = ("auto", "model")


@dataclass(frozen=True, slots=True)
class KvFormat:
    """The dtype of a KV cache.

    Args:
        name: as the user wrote it, with ``auto`` resolved.
        key_bits: bits of one element of a key.
        value_bits: bits of one element of a value.
        scale_bytes: bytes beside each head's key, and beside its value, of each token.
    """

    name: str
    key_bits: Fraction
    value_bits: Fraction
    scale_bytes: int = 0

    @property
    def eight_bit(self) -> bool:
        """Whether elements are 8-bit floats, which some layouts of sparse attention treat apart."""
        return self.key_bits == 8 and not self.name.startswith("int8")


def kv_format(name: str, model_dtype: str, *, value_name: str | None = None, where: str = FLAG) -> KvFormat:
    """The KV format that a name means; ``auto`` is the dtype of the model's activations, 16 bits at least.

    Args:
        name: auto, bf16, fp16, fp32, fp8 (e4m3, e5m2, ds_mla, per_token_head), int8, nvfp4, or a ggml type.
        model_dtype: the dtype of the published weights.
        value_name: the dtype of values where it differs from that of keys (llama.cpp).
        where: the flag, for an error.

    Raises:
        UsageError: no format has that name.
    """
    plain = model_dtype if DTYPE_BYTES[model_dtype] > 1 else "bf16"
    key = plain if name.lower() in _AUTO else name.lower().replace("-", "_")
    value = key if value_name is None else plain if value_name.lower() in _AUTO else value_name.lower()
    scales = _SCALE_BYTES if key.endswith("_per_token_head") else 0
    shown = key if value == key else f"{key}/{value}"
    return KvFormat(shown, _bits(key, where), _bits(value, where), scales)


def _bits(name: str, where: str) -> Fraction:
    return _NVFP4_BITS if name.startswith("nvfp4") else element_bits(_SAME_AS.get(name, name), where=where)
