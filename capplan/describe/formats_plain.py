"""Bytes of one element in the plain number formats."""

from __future__ import annotations

DTYPE_BYTES: dict[str, int] = {"fp32": 4, "fp16": 2, "bf16": 2, "fp8": 1, "int8": 1}
