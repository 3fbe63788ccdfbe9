"""TTFT and TPOT of transformers' own ``generate`` on a model with random weights, and the bytes that its cache holds.

TTFT = time of generate(1 new token);  TPOT = (time of generate(n) − TTFT) / (n − 1)
"""

from __future__ import annotations

from collections.abc import Iterator
from importlib.util import find_spec
from typing import Any

import torch

from calibrate.device import Device
from calibrate.kernels.kernel import dtype_of
from calibrate.phase_load import Load
from calibrate.phase_timer import Timed, repeated, timed
from calibrate.phases import Phases, expected_cache_bytes
from calibrate.random_numbers import random_normal
from capplan.describe.model import ModelSpec
from capplan.errors import NotFoundError

Tensor = Any


def require_transformers() -> None:
    """Return if transformers can be imported.

    Raises:
        NotFoundError: it can't.
    """
    if find_spec("transformers") is None:
        raise NotFoundError("transformers is not installed", where="--runner", hint="pip install transformers")


def run_generate(
    config: Any, spec: ModelSpec, load: Load, device: Device, *, format: str = "bf16", budget: float = 10.0
) -> Phases:
    """Build the model of a configuration and time its ``generate``.

    Args:
        config: a transformers configuration, of a size that fits.
        spec: what capplan reads from it.
        load: prompts and new tokens.
        device: where.
        format: of weights and activations.
        budget: seconds to spend on repeats, but for the least number of them.
    """
    model = random_model(config, device, format)
    tokens = torch.randint(0, spec.embedding.vocab_size, (load.batch, load.prompt)).to(device.torch_name)
    output = _generate(model, tokens, load.new)
    kept = output.get("cache") or output.past_key_values

    def once() -> tuple[Timed, Timed]:
        first, disturbed = timed(lambda: _generate(model, tokens, 1), device)
        total, also_disturbed = timed(lambda: _generate(model, tokens, load.new), device)
        further = max(total - first, 1e-9) / max(load.new - 1, 1)
        return (first, disturbed), (further, disturbed or also_disturbed)

    ttft, tpot = repeated(once, budget)
    weights = sum(value.numel() * value.element_size() for value in model.parameters())
    peak = int(torch.cuda.max_memory_allocated(device.torch_name)) if device.kind == "cuda" else 0
    held = sum(tensor.numel() * tensor.element_size() for tensor in cache_tensors(kept))
    expected = expected_cache_bytes(spec, load, format)
    return Phases(spec, load, "eager", "transformers", ttft, tpot, held, expected, weights, peak)


def random_model(config: Any, device: Device, format: str) -> Any:
    """The model of a configuration with random weights, made on the device itself."""
    from transformers import AutoModelForCausalLM

    with torch.device("meta"):
        empty = AutoModelForCausalLM.from_config(config, dtype=dtype_of(format))
    model = empty.to_empty(device=device.torch_name).eval()
    model.tie_weights()
    with torch.no_grad():
        for number, value in enumerate(model.parameters()):
            scale = value.shape[-1] ** -0.5 if value.dim() > 1 else 0.1
            value.copy_(random_normal(device.torch_name, number, tuple(value.shape), value.dtype, scale))
        _fill_buffers(model)
    return model


def _fill_buffers(model: Any) -> None:
    """Buffers that are computed when a model is made, and are empty on one that was made of nothing."""
    for module in model.modules():
        if hasattr(module, "rope_init_fn") or hasattr(module, "inv_freq"):
            frequencies = module.inv_freq
            width = 2 * frequencies.numel()
            exponent = torch.arange(0, width, 2, device=frequencies.device, dtype=torch.float32) / width
            frequencies.copy_(10000.0**-exponent)
            if hasattr(module, "original_inv_freq"):
                module.original_inv_freq = frequencies.clone()
        for name, buffer in module.named_buffers(recurse=False):
            if not name.endswith("inv_freq") and buffer.is_floating_point():
                buffer.zero_()


def _generate(model: Any, tokens: Tensor, new: int) -> Any:
    """Greedy generation of exactly so many tokens."""
    with torch.inference_mode():
        return model.generate(
            input_ids=tokens,
            attention_mask=torch.ones_like(tokens),
            max_new_tokens=new,
            min_new_tokens=new,
            do_sample=False,
            use_cache=True,
            return_dict_in_generate=True,
            pad_token_id=0,
            eos_token_id=None,
        )


def cache_tensors(cache: Any) -> Iterator[Tensor]:
    """Every tensor that a cache of transformers keeps, layer by layer, whatever the layers call them."""
    for layer in cache.layers:
        seen: set[int] = set()
        for value in vars(layer).values():
            for tensor in value if isinstance(value, (list, tuple)) else [value]:
                if isinstance(tensor, torch.Tensor) and tensor.dim() > 1 and tensor.data_ptr() not in seen:
                    seen.add(tensor.data_ptr())
                    yield tensor
