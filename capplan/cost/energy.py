"""Electricity: what the devices draw, what the building adds, and what that costs.

    energy = GPU-hours · TDP · share · PUE

The shares and the building's PUE are assumed unless they are given.
"""

from __future__ import annotations

from dataclasses import dataclass
from fractions import Fraction

TDP_SHARE = Fraction(7, 10)
"""Share of the board's power limit that serving draws on average (assumed)."""

IDLE_SHARE = Fraction(15, 100)
"""Share that a loaded model without requests draws (assumed)."""

PUE = Fraction(13, 10)
"""Power usage effectiveness of the building: all power over that of the machines (assumed)."""


@dataclass(frozen=True, slots=True)
class Power:
    """How much of the board power is drawn.

    Args:
        tdp_share: share of the limit while requests are served.
        idle_share: share without requests.
        pue: all power of the building over that of its machines.
    """

    tdp_share: Fraction = TDP_SHARE
    idle_share: Fraction = IDLE_SHARE
    pue: Fraction = PUE


def energy_kwh(gpu_hours: Fraction, tdp_w: float, utilisation: Fraction, power: Power) -> Fraction:
    """Kilowatt-hours: ``h · TDP · (u · share + (1 - u) · idle) · PUE / 1000``.

    Args:
        gpu_hours: h, hours that devices are on.
        tdp_w: power limit of one board, W.
        utilisation: u, share of those hours with work.
        power: shares and PUE.

    Leaves out hosts, switches and disks; a PUE above the building's own may stand for them.
    """
    drawn = utilisation * power.tdp_share + (1 - utilisation) * power.idle_share
    return gpu_hours * Fraction(tdp_w) * drawn * power.pue / 1000
