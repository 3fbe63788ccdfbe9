"""How the catalog of accelerators looks."""

from __future__ import annotations

from capplan.describe.gpu import GpuSpec
from capplan.questions.answer import Answer
from capplan.questions.gpus import GpuList
from capplan.report.tables import Column, Facts, Table, View
from capplan.report.units import show_bytes


def gpu_list_view(answer: Answer[GpuList]) -> View:
    """One row a device."""
    columns = [
        Column("GPU", "name"),
        Column("architecture", "architecture"),
        Column("memory", "memory_gib", "gib"),
        Column("bandwidth", "bandwidth", "bandwidth"),
        Column("bf16", "bf16", "flops"),
        Column("fp8", "fp8", "flops"),
        Column("TDP W", "tdp_w", "number"),
        Column("trust", "confidence"),
    ]
    rows = [[getattr(gpu, column.name) for column in columns] for gpu in answer.result.gpus]
    return View(f"{len(rows)} devices (dense rates)", (Table(columns, rows),))


def gpu_view(answer: Answer[GpuSpec]) -> View:
    """Memory, links and power, and one row a number format."""
    gpu = answer.result
    memory = gpu.memory
    pairs = [
        ("vendor, architecture", f"{gpu.vendor}, {gpu.architecture}"),
        ("memory for an engine", f"{show_bytes(gpu.engine_memory)}  (from {memory.engine_bytes_basis})"),
        ("label", f"{memory.label_gb:g} GB {memory.type}"),
        ("bandwidth", f"{memory.bandwidth / 1e9:,.0f} GB/s"),
    ]
    if gpu.link:
        link = gpu.link
        pairs.append(
            ("link", f"{link.kind}, {link.per_direction / 1e9:,.0f} GB/s each way, {link.domain_size} devices")
        )
    if gpu.pcie:
        pairs.append(("PCIe", f"gen {gpu.pcie.generation}, {gpu.pcie.per_direction / 1e9:,.0f} GB/s each way"))
    if gpu.tdp_w:
        pairs.append(("power", f"{gpu.tdp_w:g} W"))
    if gpu.aliases:
        pairs.append(("also called", ", ".join(gpu.aliases)))
    columns = [Column("format", "format"), Column("dense rate", "flops", "flops")]
    rates = [[name, rate] for name, rate in gpu.dense_rates.items()]
    sections: list[Facts | Table] = [Facts(pairs), Table(columns, rates)]
    if gpu.mig:
        slices = [[part.profile, part.sms, part.usable_mib * 2**20, part.most] for part in gpu.mig]
        mig_columns = [Column("MIG slice", "profile"), Column("SMs", "sms", "integer")]
        mig_columns += [Column("memory", "bytes", "bytes"), Column("at most", "most", "integer")]
        sections.append(Table(mig_columns, slices))
    return View(gpu.title or gpu.name, sections)
