"""The search behind ``plan``: each option is asked ever dearer questions, and only while it could still win.

    what does one replica cost?          a price and a division
    what does the roofline allow?        the work of two steps, counted once for all devices, over rates
    does it fit?                         the memory budget of every stage, exactly
    how much does it take in time?       the laws of measured kernels, at many loads at once

The first two give lower bounds of the cost; see `capplan.planner.search` for why the first plan that comes out is the
cheapest there is. The last begins with decode steps, and ends there where those alone make an option dearer than any
plan that is wanted.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass, replace
from fractions import Fraction
from math import ceil
from typing import Any, TypeVar, cast

from capplan.cost.hire import Hire, HireBook
from capplan.errors import NotFoundError, UnsupportedError, UsageError
from capplan.identity import Same
from capplan.memory.budget import MemoryBudget
from capplan.planner.bounds import Bound, KnownSteps, best_rate, bound_of, known_steps, most_in_time
from capplan.planner.capacity import Capacity, find_capacity, most_clients, narrowed, slowdown
from capplan.planner.pools import PoolReplica, fewest_pair, fixed_pair, least_pools
from capplan.planner.rejections import Rejections
from capplan.planner.search import BestFirst
from capplan.planner.step_memory import StepMemory
from capplan.questions.drafting import drafting_replica, resolve_drafts
from capplan.questions.plan_formats import FormatChoice, format_choices
from capplan.questions.plan_lookup import Lookup
from capplan.questions.plan_option import Candidate, Option
from capplan.questions.plan_request import PlanRequest
from capplan.questions.plan_space import Space, devices, space_options, unlaunchable
from capplan.questions.pools import PoolsChoice, moved_bytes, way_between
from capplan.questions.setting_memory import replica_with, setting_budget
from capplan.serving.replica import Replica

T = TypeVar("T")

DEARER = 3
"""Plans that cost more than this many times the cheapest are not worked out."""


class DoesNotFitError(Exception):
    """An option lacks memory.

    Args:
        reason: in words.
        missing: bytes on a rank.
    """

    def __init__(self, reason: str, missing: int) -> None:
        super().__init__(reason)
        self.reason, self.missing = reason, missing


@dataclass
class PlanSearch:
    """One search; it keeps what several options share.

    Args:
        request: what is asked.
        formats: formats of the weights.
        rejections: why options fell out.
    """

    request: PlanRequest
    formats: list[FormatChoice]
    rejections: Rejections

    def __post_init__(self) -> None:
        pricing, folders = self.request.pricing, self.request.folders
        self._book = HireBook(
            pricing.price_per_gpu_hour,
            pricing.provider,
            pricing.commitment,
            pricing.region,
            pricing.on,
            folders.hardware,
        )
        self._lookup = Lookup(self.request.lengths, folders)
        self._memory = StepMemory()
        self._known: dict[Any, Any] = {}
        self._solved: dict[str, list[Fraction]] = {}
        self._per_family = 1
        self.search: BestFirst[Candidate] = BestFirst((), self.refine, 0)
        self.options_tried = self.measured = self.too_dear = 0

    @classmethod
    def of(cls, request: PlanRequest) -> PlanSearch:
        """A search with its formats looked up.

        Raises:
            CapplanError: no such model, format or device.
        """
        return cls(request, format_choices(request.model, request.weight_formats, request.folders), Rejections())

    def plans(self, per_family: int) -> Iterator[Candidate]:
        """Plans, the cheapest first, at most so many of each device, and none at more than `DEARER` times the best."""
        self._per_family = per_family
        self.search = BestFirst(
            self._starts(), self.refine, per_family, lambda item, best: item.cost <= DEARER * best.cost
        )
        for item in self.search:
            yield replace(item, setting=self._lookup.shown(item.option))

    def exhaustive(self) -> list[Candidate]:
        """Every plan, each worked out to the end: the oracle of the search."""
        found = []
        for start in self._starts():
            item: Candidate | None = start
            while item is not None and not item.solved:
                item = self.refine(item)
            found += [item] if item is not None else []
        return sorted(found, key=lambda item: item.key)

    def _starts(self) -> list[Candidate]:
        """Every option at the price of one replica; devices that cannot be had, or of which nothing is known, apart."""
        starts: list[Candidate] = []
        unknown: set[str] = set()
        for option in self._options():
            name = option.gpu.name
            if name in unknown:
                continue
            replicas = option.least_replicas + self.request.spare_replicas
            try:
                hire = self._hire(option, replicas)
            except NotFoundError:
                unknown.add(name)
                self.rejections.add("no price", name)
                continue
            if self._lookup.machine(option.gpu, option.engine).kernels is None:
                unknown.add(name)
                self.rejections.add("no measured profile", name)
                continue
            reason = unlaunchable(option)
            if reason:
                self.rejections.add(reason, option.label)
                continue
            starts.append(Candidate(option, "priced", hire.usd_per_hour(replicas), hire=hire))
        return starts

    def _options(self) -> Iterator[Option]:
        """Everything that could be built, counted."""
        request = self.request
        space = Space(
            devices(request.gpus, request.folders),
            tuple(self.formats),
            request.engines,
            request.kv_formats,
            request.token_budgets,
            request.max_nodes,
            (None, *request.drafting),
            (None, *request.pools),
        )
        for option in space_options(space, self.rejections):
            self.options_tried += 1
            yield option

    def _hire(self, option: Option, replicas: int) -> Hire:
        shape, gpu = option.shape, option.gpu
        wanted = (gpu.name, shape.gpus, replicas, min(shape.gpus, gpu.gpus_per_node or 1))
        return self._once(wanted, lambda: self._book.cheapest(*wanted))

    def _once(self, key: Any, found: Callable[[], T]) -> T:
        """What many options have in common, found for the first of them."""
        if key not in self._known:
            self._known[key] = found()
        return cast("T", self._known[key])

    def refine(self, item: Candidate) -> Candidate | None:
        """The next question; None where its answer ends the option."""
        try:
            if item.stage == "priced":
                return self._bounded(item)
            if item.stage == "bounded":
                return self._fitted(item)
            return self._measured(item)
        except DoesNotFitError as error:
            self.rejections.add("does not fit", item.option.label, error.reason, error.missing)
        except (UsageError, UnsupportedError) as error:
            self.rejections.add("cannot be run", item.option.label, error.message)
        return None

    def _bounded(self, item: Candidate) -> Candidate | None:
        option = item.option
        lacking = option.format.bytes // option.shape.gpus - option.gpu.engine_memory
        if lacking > 0:
            raise DoesNotFitError("the weights alone are too large", lacking)
        bound = self._once(("bound", self._lookup.kind(option)), lambda: self._bound(option, None))
        return self._priced(replace(item, stage="bounded", bound=bound), bound, 1 << 30)

    def _bound(self, option: Option, known: KnownSteps | None) -> Bound:
        machine, lengths = self._lookup.machine(option.gpu, option.engine), self.request.lengths
        work, widening = self._lookup.work(option), self.request.limits.widening
        return bound_of(work, machine, option.budget, lengths.isl, lengths.osl, widening, option.per_round, known)

    def _priced(self, item: Candidate, bound: Bound, most: int) -> Candidate | None:
        """The cost, at least, of a server that is as fast as its roofline and runs so many sequences at most."""
        if item.option.pools is not None:
            return self._priced_pools(item, item.option.pools, bound, most)
        replicas = self._least_replicas(item.option, bound, most)
        if not replicas:
            self._too_slow(item, bound)
            return None
        return self._with_replicas(replace(item, seconds=float(bound.tpot[0])), replicas)

    def _least_replicas(self, option: Option, bound: Bound, most: int) -> int:
        """The fewest replicas that a bound allows; 0: none are enough."""
        request, groups = self.request, option.shape.dp
        rate = best_rate(bound, ttft=request.ttft, tpot=request.tpot, most=most) * groups
        if not rate:
            return 0
        if request.request_rate is not None:
            return ceil(request.request_rate / rate)
        clients = most_in_time(bound, ttft=request.ttft, tpot=request.tpot, most=most) * groups
        return ceil((request.concurrency or 0) / clients)

    def _priced_pools(self, item: Candidate, pools: PoolsChoice, bound: Bound, most: int) -> Candidate | None:
        """The same of pools."""
        request = self.request
        times = self._lookup.machine(item.option.gpu, item.option.engine).times
        least = least_pools(bound, request.pool_load(self._slow(item)), times, item.option.shape.dp, most)
        if least.replicas is None:
            self._out_of_time(item, least.first_token, least.token)
            return None
        units = max(ceil(part / size) for part, size in zip(least.replicas, pools.sizes, strict=True))
        replicas = units * pools.replicas if pools.given else max(pools.replicas, sum(least.replicas))
        return self._with_replicas(replace(item, seconds=float(bound.step[0])), replicas)

    def _too_slow(self, item: Candidate, bound: Bound) -> None:
        self._out_of_time(item, bound.ttft[0], bound.tpot[0])

    def _out_of_time(self, item: Candidate, ttft: float, tpot: float) -> None:
        """By which limit an option falls out whose least times these are."""
        request = self.request
        if request.tpot is not None and tpot > request.tpot:
            reason = f"TPOT is {_told(tpot)} at least, by the roofline"
            self.rejections.add("too slow a token", item.option.label, reason, tpot / request.tpot - 1)
        elif request.ttft is not None:
            reason = f"TTFT is {_told(ttft)} at least, by the roofline"
            self.rejections.add("too late a first token", item.option.label, reason, ttft / request.ttft - 1)

    def _with_replicas(self, item: Candidate, replicas: int) -> Candidate | None:
        """The item at the price of so many replicas; None where that is above the cap."""
        hired = replicas + self.request.spare_replicas
        hire = self._hire(item.option, hired)
        cost, cap = hire.usd_per_hour(hired), self.request.price_cap
        if cap is not None and cost > Fraction(cap):
            over = float(cost / Fraction(cap) - 1)
            reason = f"${float(cost):,.2f} an hour at least"
            self.rejections.add("above the price cap", item.option.label, reason, over)
            return None
        return replace(item, cost=cost, replicas=replicas, hire=hire)

    def _fitted(self, item: Candidate) -> Candidate | None:
        assert item.bound is not None
        option = item.option
        budget, server = self._once(("server", self._lookup.kind(option)), lambda: self._server(option))
        if server is None:
            worst = max(budget.shortages, key=lambda shortage: shortage.bytes)
            raise DoesNotFitError(worst.reason, worst.bytes)
        fitted = replace(item, stage="fitted", budget=budget, replica=server)
        return self._priced(fitted, item.bound, most_clients(server, self.request.lengths))

    def _server(self, option: Option) -> tuple[MemoryBudget, Replica | None]:
        """Where an option's memory goes, and its server; None: it does not fit."""
        request, setting = self.request, self._lookup.setting(option)
        drafts = resolve_drafts(setting, option.draft) if option.draft else None
        budget = setting_budget(setting, ceil(request.isl + request.osl), request.max_num_seqs, drafts)
        if not budget.fits:
            return budget, None
        server = replace(replica_with(setting, budget), summed_by=self._memory.sums)
        return budget, drafting_replica(server, drafts) if drafts else server

    def _measured(self, item: Candidate) -> Candidate | None:
        request, server = self.request, item.replica
        assert server is not None
        if item.option.pools is None and item.capacity is None and self._too_dear(item.option, server):
            self.too_dear += 1
            return None
        self.measured += item.capacity is None
        if item.option.pools is not None:
            return self._paired(item, server, item.option.pools)
        before, lengths, limits = item.capacity, request.lengths, request.limits
        if before is None:
            capacity = self._once(Same(server), lambda: find_capacity(server, lengths, limits))
        else:
            gap = (Same(server), before.clients, before.above)
            capacity = self._once(gap, lambda: narrowed(before, server, lengths, limits))
        if capacity.best is None:
            self._too_late(item, capacity)
            return None
        least, most = self._replicas(capacity)
        item = replace(item, capacity=capacity)
        if least == most or capacity.exact:
            return self._known_cost(self._with_replicas(replace(item, stage="solved"), most))
        return self._with_replicas(item, least)

    def _known_cost(self, item: Candidate | None) -> Candidate | None:
        """A plan whose cost is exact, which later ones of its device must not exceed."""
        if item is not None:
            self._solved.setdefault(item.family, []).append(item.cost)
        return item

    def _too_dear(self, option: Option, server: Replica) -> bool:
        """Whether an option's decode steps alone make it dearer than any plan that is wanted, of all or of its device.

        They are the first part of what it is asked next; the rest need not be worked out then.
        """
        limits = [DEARER * self.search.first.cost] if self.search.first is not None else []
        limits += sorted(self._solved.get(option.gpu.name, ()))[self._per_family - 1 : self._per_family]
        if not limits:
            return False
        lengths = self.request.lengths
        bound = self._bound(option, known_steps(server, lengths))
        replicas = self._least_replicas(option, bound, most_clients(server, lengths))
        hired = replicas + self.request.spare_replicas
        return replicas > 0 and self._hire(option, hired).usd_per_hour(hired) > min(limits)

    def _replicas(self, capacity: Capacity) -> tuple[int, int]:
        """Replicas for the load: as few as the gap in what is known allows, and enough in any case."""
        request = self.request
        if request.request_rate is not None:
            return ceil(request.request_rate / capacity.most_rate), ceil(request.request_rate / capacity.sure_rate)
        clients, groups = request.concurrency or 0.0, capacity.rungs.groups
        most = max(capacity.clients, capacity.above - 1)
        return ceil(clients / (most * groups)), ceil(clients / (capacity.clients * groups))

    def _paired(self, item: Candidate, server: Replica, pools: PoolsChoice) -> Candidate | None:
        """The pools that carry the load."""
        request, setting = self.request, self._lookup.setting(item.option)
        load = request.pool_load(self._slow(item))
        kind = self._once(("pools", Same(server)), lambda: PoolReplica(server, load))
        moved = moved_bytes(setting, request.isl)

        def transfer(replicas: int) -> float:
            return moved / way_between(setting, replicas, pools.transfer_bandwidth)[0]

        pair = fixed_pair(kind, pools.sizes, transfer(pools.replicas)) if pools.given else fewest_pair(kind, transfer)
        if pair is None:
            alone = kind.as_predicted.alone(transfer(pools.replicas))
            self._lone_too_late(item, alone.ttft, alone.tpot, kind.most_running <= 0)
            return None
        return self._known_cost(self._with_replicas(replace(item, stage="solved", pair=pair), pair.replicas))

    def _slow(self, item: Candidate) -> tuple[float, float]:
        """Factors of TTFT and of TPOT at the bad end."""
        machine = self._lookup.machine(item.option.gpu, item.option.engine)
        return slowdown(machine, self.request.limits.widening)

    def _too_late(self, item: Candidate, capacity: Capacity) -> None:
        rungs = capacity.rungs
        self._lone_too_late(item, float(rungs.ttft[0]), float(rungs.tpot[0]), bool(rungs.late[0] & 2))

    def _lone_too_late(self, item: Candidate, ttft: float, tpot: float, slow: bool) -> None:
        """By which limit an option falls out that keeps a lone request waiting so long."""
        request, (slow_first, slow_token) = self.request, self._slow(item)
        if slow and request.tpot is not None:
            bad = tpot * slow_token
            reason = f"TPOT of a lone request is {_told(tpot)}, {_told(bad)} at the bad end"
            self.rejections.add("too slow a token", item.option.label, reason, bad / request.tpot - 1)
        elif request.ttft is not None:
            bad = ttft * slow_first
            reason = f"TTFT of a lone request is {_told(ttft)}, {_told(bad)} at the bad end"
            self.rejections.add("too late a first token", item.option.label, reason, bad / request.ttft - 1)


def _told(seconds: float) -> str:
    """Milliseconds, or seconds where those are many."""
    return f"{1e3 * seconds:.3g} ms" if seconds < 0.9995 else f"{seconds:.3g} s"
