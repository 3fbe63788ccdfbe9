"""How profiles look."""

from __future__ import annotations

from capplan.questions.answer import Answer
from capplan.questions.profiles import FitFigures, ProfileDetail, ProfileList
from capplan.report.tables import Column, Facts, Table, View


def profile_list_view(answer: Answer[ProfileList]) -> View:
    """One row a device."""
    columns = [
        Column("device", "name"),
        Column("architecture", "architecture"),
        Column("fitted", "fitted"),
        Column("kernels", "kernels", "integer"),
        Column("points", "points", "integer"),
        Column("median error", "median_error", "percent"),
    ]
    rows = [[getattr(profile, column.name) for column in columns] for profile in answer.result.profiles]
    return View(
        f"{len(rows)} measured devices (median error of a kernel on unseen configurations)", (Table(columns, rows),)
    )


def profile_view(answer: Answer[ProfileDetail]) -> View:
    """The figures that efficiencies are shares of, what carrying cost, and every fitted kernel."""
    profile = answer.result
    hardware = profile.hardware
    rates = ", ".join(f"{name} {rate / 1e12:,.0f}" for name, rate in hardware.dense_rates.items())
    pairs = [
        ("fitted", profile.fitted),
        ("dense TFLOP/s", rates),
        ("bandwidth", f"{hardware.bandwidth / 1e9:,.0f} GB/s"),
        ("multiprocessors", f"{hardware.compute_units}"),
    ]
    if hardware.link:
        pairs.append(("link", f"{hardware.link / 1e9:,.0f} GB/s each way ({hardware.link_kind})"))
    if profile.notes:
        pairs.append(("notes", profile.notes))
    sections: list[Facts | Table] = [Facts(pairs), _fits(profile)]
    if profile.carried_errors:
        columns = [Column("carried to", "relation"), Column("kind", "kind"), Column("tried on", "tried_on")]
        columns += [Column("median", "median", "percent"), Column("p90", "p90", "percent")]
        rows = [
            [error.relation.replace("_", " "), error.kind, ", ".join(error.tried_on), error.median, error.p90]
            for error in profile.carried_errors
        ]
        sections.append(Table(columns, rows, title="What carrying these constants to another device cost"))
    return View(profile.title, sections)


def _fits(profile: ProfileDetail) -> Table:
    columns = [
        Column("kind", "kind"),
        Column("kernel", "kernel"),
        Column("constants", "constants"),
        Column("points", "points", "integer"),
        Column("median", "unseen_median", "percent"),
        Column("p90", "unseen_p90", "percent"),
        Column("domain", "domain"),
    ]
    rows = [
        [
            fit.kind,
            " ".join(str(value) for value in fit.kernel.values()),
            _constants(fit),
            fit.points,
            fit.unseen_median,
            fit.unseen_p90,
            ", ".join(f"{axis} {low:g}..{high:g}" for axis, (low, high) in fit.domain.items()),
        ]
        for fit in profile.fits
    ]
    return Table(columns, rows, title="Fitted kernels, with their errors on configurations left out")


def _constants(fit: FitFigures) -> str:
    """Constants in words; times in microseconds."""
    times = ("launch", "depth", "block", "expert", "latency")
    return ", ".join(
        f"{name} {value * 1e6:.3g} µs" if name in times else f"{name} {value:.3g}"
        for name, value in fit.constants.items()
        if value
    )
