"""Every kernel that is measured, one small module each, behind one interface (`calibrate.kernels.kernel`)."""

from calibrate.kernels import (
    copy,
    decode_attention,
    delta_rule,
    experts,
    gemm,
    gemm_block_scaled,
    gemm_fp8,
    gemm_int4,
    gemm_int8,
    host_transfer,
    latent_decode,
    latent_prefill,
    launch,
    paged_attention,
    prefill_attention,
    read,
    rows,
    windowed_attention,
)
from calibrate.kernels.kernel import Kernel

KERNELS: dict[str, Kernel] = {
    kernel.name: kernel
    for kernel in (
        read.KERNEL,
        copy.KERNEL,
        gemm.KERNEL,
        decode_attention.KERNEL,
        prefill_attention.KERNEL,
        *rows.KERNELS,
        experts.KERNEL,
        latent_decode.KERNEL,
        latent_prefill.KERNEL,
        launch.KERNEL,
        delta_rule.KERNEL,
        host_transfer.KERNEL,
        gemm_fp8.KERNEL,
        gemm_int8.KERNEL,
        gemm_int4.KERNEL,
        gemm_block_scaled.KERNEL,
        paged_attention.KERNEL,
        windowed_attention.KERNEL,
    )
}
"""By name, those that a profile needs most first."""

__all__ = ["KERNELS", "Kernel"]
