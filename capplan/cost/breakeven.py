"""From which volume on is a server of one's own cheaper than an API?

    API(v)  = p · v
    own(v)  = F + C · max(least, ⌈v / cap⌉)

with v requests a month, p what the API takes for one, C what a replica costs a month, cap how many requests it answers
in one, and F what is paid besides. The lines cross where ``p · v = own(v)``; since replicas are whole, `own` climbs in
steps, and may cross again after the first time.
"""

from __future__ import annotations

from dataclasses import dataclass
from fractions import Fraction
from math import ceil


@dataclass(frozen=True, slots=True)
class OwnCost:
    """What servers of one's own cost.

    Args:
        replica: C, dollars a month of one replica.
        capacity: cap, requests a month that one replica answers.
        fixed: F, dollars a month besides.
        least: replicas that run in any case.
    """

    replica: Fraction
    capacity: Fraction
    fixed: Fraction = Fraction(0)
    least: int = 1

    def replicas(self, requests: Fraction) -> int:
        """Whole replicas for a month's requests."""
        return max(self.least, ceil(requests / self.capacity))

    def cost(self, requests: Fraction) -> Fraction:
        """``own(v)``, dollars a month."""
        return self.fixed + self.replica * self.replicas(requests)


@dataclass(frozen=True, slots=True)
class BreakEven:
    """Where two cost lines meet.

    Args:
        requests: the least volume a month at which one's own servers are no dearer; None: never.
        always_from: the volume from which on they are never dearer again; None: never.
        replicas: replicas at the first.
        utilisation: how busy they are there.
    """

    requests: Fraction | None
    always_from: Fraction | None
    replicas: int
    utilisation: Fraction


NEVER = BreakEven(None, None, 0, Fraction(0))


def api_price_per_request(
    isl: Fraction,
    osl: Fraction,
    usd_per_1m_input: Fraction,
    usd_per_1m_output: Fraction,
    cached_share: Fraction = Fraction(0),
    usd_per_1m_cached: Fraction | None = None,
) -> Fraction:
    """What an API takes for one request: ``(L · (1 - h) · p_in + L · h · p_cached + O · p_out) / 10^6``.

    Args:
        isl: L, input tokens.
        osl: O, output tokens.
        usd_per_1m_input: p_in.
        usd_per_1m_output: p_out.
        cached_share: h, share of the input that is cached.
        usd_per_1m_cached: p_cached; None: no discount.
    """
    cached = usd_per_1m_input if usd_per_1m_cached is None else usd_per_1m_cached
    ingoing = isl * (1 - cached_share) * usd_per_1m_input + isl * cached_share * cached
    return (ingoing + osl * usd_per_1m_output) / 10**6


def break_even(own: OwnCost, api_request: Fraction) -> BreakEven:
    """Where an API's line crosses that of one's own servers.

    With n replicas the lines would cross at ``v = (F + n · C) / p``, which counts if n replicas answer as much:
    ``v ≤ n · cap``. That holds for every n from ``F / (p · cap - C)`` on; the first is the break-even. The API is never
    cheaper again once it holds that ``n · cap ≥ (F + (n + 1) · C) / p``, where the next replica is added.

    Args:
        own: what one's own servers cost.
        api_request: p, what the API takes for a request.
    """
    gain = api_request * own.capacity - own.replica
    if gain <= 0:
        if gain < 0 or own.fixed > 0:
            return NEVER
        return BreakEven(own.least * own.capacity, None, own.least, Fraction(1))
    first = max(own.least, ceil(own.fixed / gain))
    volume = (own.fixed + first * own.replica) / api_request
    settled = max(first, ceil((own.fixed + own.replica) / gain))
    always = volume if settled == first else (own.fixed + settled * own.replica) / api_request
    return BreakEven(volume, always, first, volume / (first * own.capacity))
