"""Write ``hardware/*.yaml`` from the collected table and its supplement; ``--check`` only compares.

    python hardware/source/write_entries.py

``accelerators.csv`` holds the figures as they were collected on 2026-11-29 (see its `source` column);
``supplement.yaml`` holds what the table has no column for. Decimal figures are carried over digit by digit:
989.4 TFLOPS becomes ``989.4e12``. An empty cell is a figure that is not known and becomes no key at all.
"""

from __future__ import annotations

import csv
import sys
from pathlib import Path
from typing import Any

from capplan.describe.yaml_file import read_yaml

HERE = Path(__file__).resolve().parent
FORMATS = {
    "fp32": "fp32_tflops", "tf32": "tf32_tflops", "fp16": "fp16_tflops", "bf16": "bf16_tflops",
    "fp8": "fp8_tflops", "int8": "int8_tops", "fp4": "fp4_tflops", "int4": "int4_tops",
}  # fmt: skip

RESERVED = {"true", "false", "null", "yes", "no", "on", "off", "y", "n"}
"""Words that some YAML reader takes for something else than text."""

Row = dict[str, str]
Lines = list[str]


def quoted(text: str) -> str:
    """A YAML string in double quotes, or plain where nothing in it could be misread."""
    plain = text[:1].isalpha() and all(c.isalnum() or c in " .-_/()+" for c in text) and text == text.strip()
    if plain and text.lower() not in RESERVED:
        return text
    return '"' + text.replace("\\", "\\\\").replace('"', '\\"') + '"'


def flow_list(items: list[str]) -> str:
    """A YAML list on one line."""
    return f"[{', '.join(quoted(item) for item in items)}]"


def identity(row: Row, extra: dict[str, Any]) -> Lines:
    """Names, vendor, architecture, year."""
    lines = ["schema: 1", f"name: {extra['name']}", f"title: {quoted(row['name'])}"]
    if extra.get("aliases"):
        lines.append(f"aliases: {flow_list(extra['aliases'])}")
    if extra.get("device_names"):
        lines.append(f"device_names: {flow_list(extra['device_names'])}")
    lines += [f"vendor: {row['vendor']}", f"architecture: {extra['architecture']}"]
    if "compute_capability" in extra:
        lines.append(f'compute_capability: "{extra["compute_capability"]}"')
    return [*lines, f"release_year: {row['release_year']}"]


def memory(row: Row, extra: dict[str, Any]) -> Lines:
    """The memory section."""
    lines = ["", "memory:", f"  label_gb: {row['memory_gb']}"]
    if row["usable_mib"]:
        lines.append(f"  usable_mib: {row['usable_mib']}")
    if "visible" in extra:
        lines.append(f"  cuda_visible_mib: {extra['visible']['mib']}")
    return [*lines, f"  type: {quoted(row['mem_type'])}", f"  bandwidth: {row['mem_bw_gbs']}e9  # B/s"]


def compute(row: Row) -> Lines:
    """Dense rates, units, clock, L2 and power."""
    lines = ["", "dense_rates:  # FLOP/s"]
    lines += [f"  {name}: {row[column]}e12" for name, column in FORMATS.items() if row[column]]
    keys = {"compute_units": "sm_or_cu_count", "boost_mhz": "boost_mhz", "l2_mib": "l2_mb", "tdp_w": "tdp_w"}
    return lines + [f"{key}: {row[column]}" for key, column in keys.items() if row[column]]


def links(row: Row, extra: dict[str, Any]) -> Lines:
    """The links to other devices and to the host."""
    lines = [""]
    if row["link_gbs_per_dir"]:
        lines += ["link:", f"  kind: {quoted(row['interconnect'])}"]
        lines += [f"  per_direction: {row['link_gbs_per_dir']}e9  # B/s", f"  total: {row['link_gbs_total']}e9"]
        lines.append(f"  domain_size: {extra['domain_size']}")
        if "per_peer" in extra:
            lines.append(f"  per_peer: {extra['per_peer']}e9  # B/s between two")
    if row["pcie_gen"]:
        lines.append(f"pcie: {{generation: {row['pcie_gen']}, per_direction: {row['pcie_gbs_per_dir']}e9}}")
    if "gpus_per_node" in extra:
        lines.append(f"gpus_per_node: {extra['gpus_per_node']}")
    return lines if len(lines) > 1 else []


def measured(row: Row, extra: dict[str, Any]) -> Lines:
    """What micro-benchmarks reached: products and bandwidth as shares of the datasheet, all-reduces as they are."""
    if "measured" not in extra:
        return []
    found = extra["measured"]
    shares = [f"{form}: {share(tflops, row[FORMATS[form]])}" for form, tflops in found["products"].items()]
    lines = ["", "measured:  # by micro-benchmarks, as shares of the datasheet", f"  products: {{{', '.join(shares)}}}"]
    lines.append(f"  bandwidth: {share(found['bandwidth'], row['mem_bw_gbs'])}")
    if "all_reduce" in found:
        lines.append("  all_reduce:  # B/s of the bus")
        lines += [f"    - {{ranks: {ranks}, bandwidth: {rate}e9}}" for ranks, rate in found["all_reduce"]]
    return lines


def share(reached: float, sheet: str) -> float:
    """A measured figure over the datasheet's, to four digits."""
    return round(reached / float(sheet), 4)


def trust(row: Row, extra: dict[str, Any]) -> Lines:
    """How far the figures are to be trusted."""
    lines = ["", f"confidence: {row['confidence']}", f"halved_from_sparse: {quoted(row['halved_from_sparse'])}"]
    if row["conflicts_notes"]:
        lines.append(f"notes: {quoted(row['conflicts_notes'])}")
    if extra.get("doubtful"):
        lines += ["doubtful:", *(f"  {field}: {quoted(reason)}" for field, reason in extra["doubtful"].items())]
    return lines


def source_lines(field: str, text: str, date: str) -> Lines:
    """One source under its field."""
    return [f"  {field}:", f"    source: {quoted(text)}", f"    date: {date}"]


def sources(row: Row, extra: dict[str, Any], shared: dict[str, Any]) -> Lines:
    """The sources section."""
    collected, read = shared["table"]["date"], shared["topology"]["date"]
    lines = ["", "sources:", *source_lines("all", row["source"], collected)]
    if "usable_source" in extra:
        lines += source_lines("memory.usable_mib", extra["usable_source"], read)
    if "visible" in extra:
        lines += source_lines("memory.cuda_visible_mib", extra["visible"]["source"], read)
    topology = extra.get("topology_source", shared["topology"]["source"])
    if row["link_gbs_per_dir"]:
        lines += source_lines("link.domain_size", topology, read)
    if "gpus_per_node" in extra:
        lines += source_lines("gpus_per_node", topology, read)
    for field, name in extra.get("measured_sources", {}).items():
        lines += source_lines(f"measured.{field}", shared[name]["source"], shared[name]["date"])
    if "mig" in extra:
        mig = shared[extra["mig_source"]]
        lines += source_lines("mig", mig["source"], mig["date"])
    return lines


def mig_slices(extra: dict[str, Any]) -> Lines:
    """The MIG profiles, one a line."""
    slices = extra.get("mig", [])
    rows = [f"  - {{{', '.join(f'{key}: {value}' for key, value in row.items())}}}" for row in slices]
    return ["", "mig:", *rows] if rows else []


def entry(row: Row, extra: dict[str, Any], shared: dict[str, Any]) -> str:
    """The whole YAML text of one accelerator."""
    parts = [identity(row, extra), memory(row, extra), compute(row), links(row, extra), measured(row, extra)]
    parts += [trust(row, extra), sources(row, extra, shared), mig_slices(extra)]
    return "\n".join(line for part in parts for line in part) + "\n"


def entries() -> dict[str, str]:
    """File name to text, for every row of the table."""
    supplement = read_yaml(HERE / "supplement.yaml").data
    with (HERE / "accelerators.csv").open(newline="", encoding="utf-8") as file:
        rows = list(csv.DictReader(file))
    extras = supplement["accelerators"]
    if {row["name"] for row in rows} != set(extras):
        sys.exit("accelerators.csv and supplement.yaml must name the same accelerators")
    texts = {row["name"]: entry(row, extras[row["name"]], supplement["sources"]) for row in rows}
    return {f"{extras[name]['name']}.yaml": text for name, text in texts.items()}


def main() -> None:
    """Write every entry, or with ``--check`` say which differ."""
    target = HERE.parent
    stale = []
    for name, text in entries().items():
        path = target / name
        if not path.is_file() or path.read_text(encoding="utf-8") != text:
            stale.append(name)
            if "--check" not in sys.argv:
                path.write_text(text, encoding="utf-8")
    print(f"{len(stale)} of {len(entries())} entries {'differ' if '--check' in sys.argv else 'written'}")
    sys.exit(1 if stale and "--check" in sys.argv else 0)


if __name__ == "__main__":
    main()
