"""What a search looks up once and shares between options: devices under engines, formats, the work of steps."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

from capplan.describe.deployment import Deployment, Parallel
from capplan.describe.gpu import GpuSpec
from capplan.describe.profile_choice import KernelProfile
from capplan.identity import Same
from capplan.planner.bounds import Work, work_of
from capplan.planner.capacity import Lengths
from capplan.questions.plan_option import Option
from capplan.questions.plan_request import Folders
from capplan.questions.setting import Setting, resolve_setting
from capplan.timing.machine import Machine, machine_for
from capplan.timing.network import Network, network_of
from capplan.work.deployed import deployment_formats
from capplan.work.formats import MATH_FORMATS, Formats, multiplied
from capplan.work.sharding import Sharding, check_sharding


class Lookup:
    """One search's memory.

    Args:
        lengths: of the requests.
        folders: where descriptions are looked for.
    """

    def __init__(self, lengths: Lengths, folders: Folders) -> None:
        self._lengths, self._folders = lengths, folders
        self._machines: dict[tuple[Same[GpuSpec], str, Network | None], Machine] = {}
        self._kernels: dict[Same[GpuSpec], KernelProfile | None] = {}
        self._formats: dict[Any, Formats] = {}
        self._work: dict[Any, Work] = {}

    def machine(self, gpu: GpuSpec, engine: str, network: Network | None = None) -> Machine:
        """A device under an engine, with what joins the link domains of a replica; None: one holds it.

        All of one device have one object for its kernels, by which what they have in common is known.
        """
        key = (Same(gpu), engine, network)
        if key not in self._machines:
            found = machine_for(gpu, engine, network=network, profile_dirs=tuple(self._folders.profiles))
            kernels = self._kernels.setdefault(Same(gpu), found.kernels)
            self._machines[key] = replace(found, kernels=kernels)
        return self._machines[key]

    def formats(self, option: Option) -> Formats:
        """The number formats of an option: one object for all whose caches and kernels have the same."""
        key = (Same(option.format), option.kv, Same(option.gpu))
        if key not in self._formats:
            math = frozenset(name for name in MATH_FORMATS if option.gpu.dense_rate(name) is not None)
            found = deployment_formats(option.format.spec, deployment_of(option), math)
            same = (Same(option.format), found.kv_name, _kernels(found))
            self._formats[key] = self._formats.setdefault(same, found)
        return self._formats[key]

    def kind(self, option: Option) -> Any:
        """A key that options have in common whose servers are the same: names of formats may mean one format."""
        names = (option.engine, option.shape, option.budget, option.draft)
        return (Same(option.gpu), Same(option.format), Same(self.formats(option)), *names)

    def work(self, option: Option) -> Work:
        """The work of the load's steps, counted once for options that ask for the same.

        Raises:
            UsageError: a division that no engine can run.
        """
        formats = self.formats(option)
        key = (Same(option.format), Same(formats), option.shape)
        if key not in self._work:
            sharding, lengths = sharding_of(option), self._lengths
            check_sharding(option.format.spec, sharding)
            spec = option.format.spec
            self._work[key] = work_of(spec, sharding, formats, lengths.isl, lengths.osl, lengths.hit)
        return self._work[key]

    def setting(self, option: Option) -> Setting:
        """What memory and times need of an option: nothing that is only shown."""
        formats, shape = self.formats(option), option.shape
        machine = self.machine(option.gpu, option.engine, network_of(option.gpu, shape.tp * shape.dp, shape.pp))
        deployment, sharding = deployment_of(option), sharding_of(option)
        return Setting(option.format.spec, option.gpu, deployment, sharding, formats, machine, {}, (), (), ())

    def shown(self, option: Option) -> Setting:
        """Everything of an option."""
        shape, folders = option.shape, self._folders
        return resolve_setting(
            option.format.spec,
            option.gpu,
            engine=option.engine,
            tensor_parallel_size=shape.tp,
            pipeline_parallel_size=shape.pp,
            data_parallel_size=shape.dp,
            enable_expert_parallel=shape.ep,
            weight_dtype=option.format.weight_dtype,
            kv_cache_dtype=option.kv,
            max_num_batched_tokens=option.budget,
            profiles_dirs=folders.profiles,
        )


def _kernels(formats: Formats) -> tuple[tuple[str, str | None], ...]:
    """The kernels that multiply the plan's weights: what of a device's units a model with such weights can tell."""
    if formats.plan is None:
        return ()
    schemes = (formats.plan.scheme, *(rule.scheme for rule in formats.plan.rules))
    forms = [multiplied(scheme, formats.math) for scheme in schemes if scheme is not None]
    return tuple((form.name, form.activation) for form in forms)


def deployment_of(option: Option) -> Deployment:
    """An option as a deployment."""
    engine: Any = option.engine
    return Deployment(
        engine=engine,
        parallel=parallel_of(option),
        weight_dtype=option.format.weight_dtype,
        kv_cache_dtype=option.kv,
        max_num_batched_tokens=option.budget,
    )


def parallel_of(option: Option) -> Parallel:
    """The parallel sizes of an option."""
    shape = option.shape
    return Parallel(tp=shape.tp, pp=shape.pp, dp=shape.dp, ep=shape.tp * shape.dp if shape.ep else 1)


def sharding_of(option: Option) -> Sharding:
    """The same for the ledger."""
    return Sharding.of(parallel_of(option))
