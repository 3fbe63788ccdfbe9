"""Parts of a profile's YAML: the device's figures, engines' terms, the closed loop, the provenance."""

from __future__ import annotations

from dataclasses import fields

from capplan.describe.closed_loop import ClosedLoop
from capplan.describe.engine_times import EngineTimes
from capplan.describe.profile import Profile, RatedHardware


def local_lines(profile: Profile) -> list[str]:
    """The lines of what is there, each part followed by an empty one."""
    lines: list[str] = []
    if profile.provenance:
        entries = (f"  {name}: {quoted(value)}" for name, value in profile.provenance.items())
        lines += ["provenance:", *entries, ""]
    if profile.engine_times:
        lines.append("engine_times:  # seconds and shares")
        for name, times in profile.engine_times.items():
            lines.append(f"  {name}: {{{', '.join(_terms(times))}}}")
        lines.append("")
    if profile.closed_loop:
        lines += [*_loop_lines(profile.closed_loop), ""]
    return lines


def hardware_lines(hardware: RatedHardware) -> list[str]:
    """The figures of the device that a profile's efficiencies are shares of."""
    rates = ", ".join(f"{name}: {rate:g}" for name, rate in hardware.dense_rates.items())
    lines = ["hardware:  # the figures that efficiencies are shares of", f"  architecture: {hardware.architecture}"]
    if hardware.compute_capability:
        lines.append(f"  compute_capability: {quoted(hardware.compute_capability)}")
    lines += [
        f"  dense_rates: {{{rates}}}  # FLOP/s",
        f"  bandwidth: {hardware.bandwidth:g}  # B/s",
        f"  compute_units: {hardware.compute_units}",
    ]
    if hardware.overlap:
        lines.append(f"  overlap: {hardware.overlap:g}  # exponent by which arithmetic and memory hide each other")
    if hardware.link:
        lines += [f"  link: {hardware.link:g}  # B/s in one direction", f"  link_kind: {hardware.link_kind}"]
    return lines


def quoted(text: str) -> str:
    """A text as a YAML string."""
    escaped = text.replace("\\", "\\\\").replace('"', '\\"')
    return f'"{escaped}"'


def _terms(times: EngineTimes) -> list[str]:
    """The terms that differ from the defaults, and the sources."""
    usual = EngineTimes()
    found = []
    for item in fields(times):
        value = getattr(times, item.name)
        if item.name == "sources" or value == getattr(usual, item.name):
            continue
        found.append(f"{item.name}: {_term(value)}")
    sources = ", ".join(f"{key}: {quoted(text)}" for key, text in times.sources.items())
    return [*found, f"sources: {{{sources}}}"] if sources else found


def _term(value: bool | float | tuple[str, ...]) -> str:
    if isinstance(value, tuple):
        return f"[{', '.join(map(quoted, value))}]"
    return str(value).lower() if isinstance(value, bool) else f"{value:.6g}"


def _loop_lines(loop: ClosedLoop) -> list[str]:
    """One line a phase; whether it passed follows from the rows and stands there for people."""
    verdict = "passed" if loop.passed else "FAILED"
    lines = [
        f"closed_loop:  # {verdict}: median error {100 * loop.median_error:.1f} %, median noise "
        f"{100 * loop.median_noise:.1f} %",
        f"  date: {loop.date}",
        "  rows:",
    ]
    for row in loop.rows:
        times = ", ".join(f"{name}: {getattr(row, name):.5g}" for name in ("measured", "predicted", "low", "high"))
        lines.append(
            f"    - {{model: {quoted(row.model)}, layers: {row.layers}, phase: {row.phase}, mode: {row.mode}, "
            f"batch: {row.batch}, prompt: {row.prompt}, new: {row.new}, {times}, noise: {row.noise:.3g}}}"
        )
    return lines
