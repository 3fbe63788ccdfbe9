"""Waiting in front of servers, in closed form.

    Erlang C     C(c, a) = (a^c/c! · c/(c - a)) / (Σ_{k<c} a^k/k! + a^c/c! · c/(c - a))        a = λ·s
    M/M/c        Wq = C(c, a) · s/(c - a)
    G/G/c        Wq ≈ (ca² + cs²)/2 · Wq(M/M/c)

For one server and Poisson arrivals the last is exact (Pollaczek-Khinchine).

Source: Erlang, Solution of some problems in the theory of probabilities (1917); Allen, Probability, Statistics and
Queueing Theory (1990), section 5 (the Allen-Cunneen approximation).
"""

from __future__ import annotations


def erlang_b(servers: int, offered: float) -> float:
    """The share of arrivals that find all c servers busy where nobody waits: ``B(c, a) = aB/(c + aB)`` from c - 1."""
    blocked = 1.0
    for server in range(1, servers + 1):
        blocked = offered * blocked / (server + offered * blocked)
    return blocked


def erlang_c(servers: int, offered: float) -> float:
    """The share of arrivals that wait for one of c servers; 1 where they cannot keep up.

    Args:
        servers: c.
        offered: a, arrivals in one service time.
    """
    if offered >= servers:
        return 1.0
    blocked = erlang_b(servers, offered)
    return servers * blocked / (servers - offered * (1 - blocked))


def mean_wait(
    rate: float, service: float, servers: int = 1, *, arrival_scv: float = 1.0, service_scv: float = 1.0
) -> float:
    """Mean seconds in the queue; infinite where the servers cannot keep up.

    Args:
        rate: λ, arrivals a second.
        service: s, mean seconds of service.
        servers: c.
        arrival_scv: ca², the squared coefficient of variation of the gaps: 1 for Poisson, 0 for even arrivals.
        service_scv: cs², that of the service times: 1 exponential, 0 constant.
    """
    offered = rate * service
    if offered >= servers:
        return float("inf")
    markov = erlang_c(servers, offered) * service / (servers - offered)
    return (arrival_scv + service_scv) / 2 * markov
