"""What a whole step adds to its kernels: fitted to stacks of the fitter's own, apart from the models of the check.

Two of the engine's terms come out, for each way of launching:

- ``kernel_share``: how much longer a kernel's body takes inside a step than alone (pages, caches and clocks are those
  of a model's gigabytes, and what stands between the kernels takes its time);
- ``host_launch``: seconds of the host for each operator, where a GPU waits for it.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import replace
from statistics import geometric_mean

from calibrate.phase_load import Load
from calibrate.predict import ENGINES, Prediction, machine_of, predict_decode, predict_prefill
from calibrate.samples import Sample
from capplan.describe.engine_times import EngineTimes
from capplan.describe.gpu import GpuSpec
from capplan.describe.model import Attention, Block, Dense, Embedding, ModelSpec
from capplan.describe.profile import Profile

SHARE_RANGE = (0.5, 2.0)
"""What `kernel_share` may come to; beyond it the fits of the kernels are at fault."""


def own_stack(name: str, hidden: int, heads: int, kv_heads: int, width: int, layers: int, vocabulary: int) -> ModelSpec:
    """A plain decoder with grouped queries and heads of 128."""
    mixer = Attention(heads=heads, kv_heads=kv_heads, head_dim=128)
    block = Block(mixer=(mixer,), ffn=(Dense(intermediate_size=width),))
    return ModelSpec(
        name=name,
        hidden_size=hidden,
        blocks={"layer": block},
        layers=f"{layers}*layer",
        embedding=Embedding(vocab_size=vocabulary),
    )


STACKS: dict[str, tuple[tuple[ModelSpec, Load], ...]] = {
    "cpu": (
        (own_stack("stack-of-1536", 1536, 12, 4, 4096, 12, 32000), Load(1, 96, 9)),
        (own_stack("stack-of-2560", 2560, 20, 4, 6912, 5, 32000), Load(2, 64, 9)),
    ),
    "cuda": (
        (own_stack("stack-of-1024", 1024, 8, 2, 2816, 24, 32000), Load(1, 128, 65)),
        (own_stack("stack-of-5120", 5120, 40, 8, 13824, 8, 32000), Load(8, 1024, 33)),
    ),
}
"""A narrow and a wide stack, and what each is given; by kind of device. Neither is any released model."""


def own_spec(name: str) -> ModelSpec | None:
    """The stack of a name, or None."""
    return next((spec for stacks in STACKS.values() for spec, _ in stacks if spec.name == name), None)


def fitted_times(samples: Iterable[Sample], profile: Profile, gpu: GpuSpec) -> dict[str, EngineTimes]:
    """The terms of each way of launching that the own stacks were run in.

    Args:
        samples: of a recording; others than those of the own stacks are passed over.
        profile: with its kernels, and as yet without these terms.
        gpu: the device.
    """
    found: dict[str, list[Sample]] = {}
    for sample in samples:
        if sample.kind == "phase" and not sample.problem and own_spec(sample.name) is not None:
            found.setdefault(str(sample.key["mode"]), []).append(sample)
    return {ENGINES[mode]: _times(members, profile, gpu, mode) for mode, members in found.items()}


def _times(samples: Sequence[Sample], profile: Profile, gpu: GpuSpec, mode: str) -> EngineTimes:
    predictions = [(sample, _predicted(sample, profile, gpu, mode)) for sample in samples]
    source = f"fitted to {len(samples)} phases of own stacks"
    times = EngineTimes(kernel_share=1.0, sources={"all": source})
    if mode == "eager" and "cuda" in profile.provenance:
        times = replace(times, host_launch=min(_host_launch(sample, found) for sample, found in predictions))
        predictions = [(sample, found) for sample, found in predictions if not _host_bound(sample, found, times)]
    shares = [_share(sample, found) for sample, found in predictions]
    if not shares:
        return times
    low, high = SHARE_RANGE
    return replace(times, kernel_share=min(max(geometric_mean(shares), low), high))


def _predicted(sample: Sample, profile: Profile, gpu: GpuSpec, mode: str) -> Prediction:
    spec = own_spec(sample.name)
    assert spec is not None
    load = Load(*(int(sample.shape[axis]) for axis in ("batch", "prompt", "new")))
    machine, form = machine_of(profile, gpu, mode), str(sample.key["format"])
    if sample.key["phase"] == "prefill":
        return predict_prefill(spec, load.batch, load.prompt, machine, form)
    return predict_decode(spec, load.batch, load.mean_context, machine, form)


def _share(sample: Sample, predicted: Prediction) -> float:
    """The share with which the prediction would be right: (t − Σ launches) / Σ bodies, and never nothing."""
    launches = sum(float(one.launch) for one in predicted.step.operators)
    bodies = sum(float(one.body) for one in predicted.step.operators)
    return max((sample.seconds - launches) / bodies, SHARE_RANGE[0])


def _host_launch(sample: Sample, predicted: Prediction) -> float:
    """Seconds an operator, if the host's launches were all that the step took: at most that, whatever else it did."""
    return sample.seconds / sum(float(one.operator.count) for one in predicted.step.operators)


def _host_bound(sample: Sample, predicted: Prediction, times: EngineTimes) -> bool:
    """Whether the host's launches take longer than the kernels."""
    launches = sum(float(one.operator.count) for one in predicted.step.operators)
    return times.host_launch * launches > float(predicted.step.kernels)
