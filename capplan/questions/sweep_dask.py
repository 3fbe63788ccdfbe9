"""Hand the chunks of a sweep to Dask: a local cluster, or one that is there already.

The workers run the same function as a single process, and chunks are taken in order, so that the rows are the same.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Iterable, Iterator
from typing import TYPE_CHECKING, Any

from capplan.errors import NotFoundError, UsageError

if TYPE_CHECKING:
    from capplan.questions.sweep import Compute, Scheduler, SweepChunk, Task
    from capplan.questions.sweep_request import SweepRequest

PATIENCE = "10s"
"""How long an address may take to answer."""

AHEAD = 2
"""Chunks in flight for each worker: enough to keep all busy, few enough that none pile up."""


def dask_scheduler(where: str) -> Scheduler:
    """A scheduler on Dask.

    Args:
        where: ``local``, ``local:4`` for so many workers, or the address of a scheduler: ``tcp://host:8786``.

    Raises:
        UsageError: `distributed` is not installed, or no such number of workers.
        NotFoundError: nobody answers at the address.
    """
    try:
        import distributed
    except ImportError:
        raise UsageError(
            "distributed is not installed", where="--scheduler", hint="pip install 'capplan[dask]'"
        ) from None
    dask: Any = distributed
    workers = _workers(where)

    def schedule(compute: Compute, request: SweepRequest, work: Iterable[Task]) -> Iterator[SweepChunk]:
        if workers is None:
            try:
                with dask.Client(where, timeout=PATIENCE) as client:
                    yield from _in_order(client, compute, request, work)
            except OSError as error:
                raise NotFoundError(f"no scheduler answers at {where}: {error}", where="--scheduler") from None
            return
        options: dict[str, Any] = {"n_workers": workers, "threads_per_worker": 1, "dashboard_address": None}
        with dask.LocalCluster(**options) as cluster, dask.Client(cluster) as client:
            yield from _in_order(client, compute, request, work)

    return schedule


def _workers(where: str) -> int | None:
    """Workers of a local cluster; None for an address."""
    name, _, count = where.partition(":")
    if name != "local":
        if "://" not in where:
            raise UsageError(f"{where[:60]!r} is no scheduler", where="--scheduler", hint="local:2 or tcp://host:8786")
        return None
    if not count:
        import os

        return os.cpu_count() or 1
    if not count.isdecimal() or not 1 <= int(count) <= 1024:
        raise UsageError(f"{count[:20]!r} is not a number of workers", where="--scheduler", hint="local:2")
    return int(count)


def _in_order(client: Any, compute: Compute, request: SweepRequest, work: Iterable[Task]) -> Iterator[SweepChunk]:
    """Results in the order of the tasks, with a bounded number of them on their way."""
    most = AHEAD * max(1, len(client.scheduler_info()["workers"]))
    flying: deque[Any] = deque()
    for task in work:
        flying.append(client.submit(compute, request, task, pure=False))
        if len(flying) >= most:
            yield flying.popleft().result()
    while flying:
        yield flying.popleft().result()
