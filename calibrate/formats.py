"""Number formats as torch has them, by bytes; needs no torch."""

from __future__ import annotations

ITEM_BYTES = {"fp32": 4, "tf32": 4, "fp16": 2, "bf16": 2, "fp8": 1, "int8": 1}
"""Bytes of one element."""
