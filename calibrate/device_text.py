"""A measured device as a file of ``hardware/``, so that it can be named like one of the catalog."""

from __future__ import annotations

from calibrate.profile_text import quoted
from capplan.describe.gpu import GpuSpec


def device_yaml(gpu: GpuSpec) -> str:
    """The description of a device: memory, rates, compute units, links, and where the figures are from."""
    memory = gpu.memory
    lines = [
        "schema: 1",
        f"name: {gpu.name}",
        f"title: {quoted(gpu.title)}",
        f"vendor: {gpu.vendor}",
        f"architecture: {gpu.architecture}",
        *([f"compute_capability: {quoted(gpu.compute_capability)}"] if gpu.compute_capability else []),
        "memory:",
        f"  label_gb: {memory.label_gb:.6g}",
        *([f"  usable_mib: {memory.usable_mib}"] if memory.usable_mib else []),
        *([f"  cuda_visible_mib: {memory.cuda_visible_mib}"] if memory.cuda_visible_mib else []),
        f"  type: {quoted(memory.type)}",
        f"  bandwidth: {memory.bandwidth:.6g}  # B/s",
        "dense_rates:  # FLOP/s",
        *(f"  {name}: {rate:.6g}" for name, rate in gpu.dense_rates.items()),
        *([f"compute_units: {gpu.compute_units}"] if gpu.compute_units else []),
    ]
    if gpu.link:
        lines += [
            f"link: {{kind: {quoted(gpu.link.kind)}, per_direction: {gpu.link.per_direction:.6g}, "
            f"total: {gpu.link.total:.6g}, domain_size: {gpu.link.domain_size}}}"
        ]
    if gpu.pcie:
        lines.append(f"pcie: {{generation: {gpu.pcie.generation}, per_direction: {gpu.pcie.per_direction:.6g}}}")
    if gpu.notes:
        lines.append(f"notes: {quoted(gpu.notes)}")
    lines.append("sources:")
    lines += [f"  {key}: {{source: {quoted(one.source)}, date: {one.date}}}" for key, one in gpu.sources.items()]
    return "\n".join(lines) + "\n"
