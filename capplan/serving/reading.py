"""Servers that only read: embedding, ranking, scoring. Requests and tokens a second instead of time per output token.

A pass takes k prompts of L tokens at once, as many as there are or as the token budget holds; C clients wait for C/k
passes::

    k    = min(C, max(1, budget / L))
    E2E  = t0 + tok·L + max(1, C/k) · G(k)
    rate = C / E2E

`G(k)` is the prefill of k prompts, see `capplan.serving.steady_state`.

Leaves out: padding to a common length (engines that pack prompts have none); a pass in flight when a request arrives;
pooling and scoring of what comes out.
"""

from __future__ import annotations

from dataclasses import dataclass, replace

from capplan.errors import UsageError
from capplan.serving.replica import Replica
from capplan.serving.steady_state import OperatingPoint, ServingTerms
from capplan.serving.workload import Workload


@dataclass(frozen=True)
class ReadingServer:
    """A replica that answers with what one pass over the input gives.

    Args:
        replica: the replica.
    """

    replica: Replica

    @property
    def groups(self) -> int:
        """Its data-parallel groups."""
        return self.replica.sharding.dp

    def together(self, workload: Workload) -> int:
        """Prompts that one pass of a group takes at most."""
        settings = self.replica.settings
        return max(1, min(settings.max_num_seqs, settings.max_num_batched_tokens // new_tokens(workload)))

    def most_clients(self, workload: Workload) -> float:
        """Clients that keep every pass full while the front end works on others."""
        return 64.0 * self.together(workload) * self.groups

    def closed_loop(self, workload: Workload) -> OperatingPoint:
        """The operating point of `concurrency` clients.

        Raises:
            UsageError: the workload has no concurrency.
        """
        if workload.concurrency is None:
            raise UsageError("a closed loop needs a concurrency", where="--concurrency")
        times = self.replica.machine.times
        clients = workload.concurrency / self.groups
        running = max(1.0, min(clients, self.together(workload)))
        parts = self.replica.prefill(new_tokens(workload), round(running))
        one = max(parts.seconds(times), times.prompt_host(parts.steps * self.replica.spec.depth, parts.launches))
        total = times.first_token + times.per_input_token * workload.isl + max(1.0, clients / running) * one
        rate = clients * self.groups / total
        return OperatingPoint(
            ttft=total,
            tpot=0.0,
            e2e=total,
            request_rate=rate,
            output_rate=0.0,
            input_rate=rate * workload.isl,
            admitted_batch=running * self.groups,
            queued=clients > running * (1 + 1e-9),
            terms=ServingTerms(running, 0.0, 0.0, one, 0.0, 0.0, 0.0, min(1.0, rate * one / (running * self.groups))),
        )


def new_tokens(workload: Workload) -> int:
    """Tokens of a prompt that are not cached."""
    return max(1, round(workload.isl * (1 - workload.prefix_hit_rate)))


def reading(workload: Workload) -> Workload:
    """A load whose answers have no tokens, as a load of one: lengths of outputs play no part."""
    return replace(workload, osl=1.0, osl_variation=0.0)
