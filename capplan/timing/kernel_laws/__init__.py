"""The kernel laws: seconds of one kernel call from its shape, a few fitted constants and datasheet figures.

Each law is a pure function that returns its terms (`KernelTime`); rival laws of one kernel stand side by side. Shapes
may be numbers or NumPy arrays, which broadcast.
"""

from capplan.timing.kernel_laws.attention import (
    attended_pairs,
    carried_prefill_attention_time,
    decode_attention_time,
    prefill_attention_time,
)
from capplan.timing.kernel_laws.collectives import (
    Collective,
    bus_share,
    collective_time,
    linear_collective_time,
)
from capplan.timing.kernel_laws.gemm import (
    expected_distinct_experts,
    gemm_bytes,
    gemm_flops,
    gemm_time,
    gemm_time_from_few_points,
    grouped_gemm_time,
)
from capplan.timing.kernel_laws.mla import mla_decode_time, mla_prefill_time
from capplan.timing.kernel_laws.rows import recurrence_time, rows_time
from capplan.timing.kernel_laws.terms import KernelTime, Quantity, Rates

__all__ = [
    "Collective",
    "KernelTime",
    "Quantity",
    "Rates",
    "attended_pairs",
    "bus_share",
    "carried_prefill_attention_time",
    "collective_time",
    "decode_attention_time",
    "expected_distinct_experts",
    "gemm_bytes",
    "gemm_flops",
    "gemm_time",
    "gemm_time_from_few_points",
    "grouped_gemm_time",
    "linear_collective_time",
    "mla_decode_time",
    "mla_prefill_time",
    "prefill_attention_time",
    "recurrence_time",
    "rows_time",
]
