"""Which weights of a model are quantised, and how: a plan that answers for each module.

A checkpoint's own configuration decides module by module (`capplan.describe.quantisation_config` reads it); where a
user only names a scheme, `default_plan` says what the library that makes it leaves alone. Some tensors no library
quantises: embeddings, norms, routers, biases, convolutions and state parameters.
"""

from __future__ import annotations

from dataclasses import dataclass

from capplan.describe.formats import BF16, NumberFormat
from capplan.describe.module_names import ModuleNames
from capplan.describe.weight_schemes import (
    Awq,
    BitsAndBytesFourBit,
    Ggml,
    Gptq,
    Mxfp4,
    Nvfp4,
    PackQuantized,
    Plain,
    ScaledEightBit,
    WeightScheme,
)

LINEAR_COMPONENTS = frozenset({"attention", "indexer", "linear_mixer", "mlp", "experts_routed", "experts_shared"})
"""The components whose matrices libraries quantise unless told not to; the head and towers are not among them."""


@dataclass(frozen=True)
class Rule:
    """Modules that are stored in a scheme of their own; None: they stay unquantised."""

    modules: ModuleNames
    scheme: WeightScheme | None


@dataclass(frozen=True)
class QuantisationPlan:
    """How each weight matrix of a model is stored.

    Args:
        method: who quantised it: ``gptq``, ``modelopt``, ... or ``none``.
        unquantised: the number format of everything else.
        scheme: what a matrix of a quantised component gets when no rule speaks of it; None: it stays unquantised.
        rules: exceptions, the first that matches decides.
        components: the components that `scheme` applies to.
        kv_cache: the number format that the checkpoint asks for its KV cache, when it does.
    """

    method: str
    unquantised: NumberFormat
    scheme: WeightScheme | None = None
    rules: tuple[Rule, ...] = ()
    components: frozenset[str] = LINEAR_COMPONENTS
    kv_cache: str | None = None

    @property
    def depends_on_layer(self) -> bool:
        """Whether equal modules of different layers may be stored differently."""
        return any(rule.modules.names_layers for rule in self.rules)

    def scheme_for(self, module: str, component: str, shape: tuple[int, ...]) -> WeightScheme:
        """How the weight of `module` is stored.

        Args:
            module: its path, such as ``model.layers.3.self_attn.q_proj``.
            component: the part of the model it belongs to.
            shape: its shape; only matrices are quantised.
        """
        plain = Plain(self.unquantised)
        if len(shape) != 2 or component in ("embedding", "norms", "router"):
            return plain
        for rule in self.rules:
            if rule.modules.has(module):
                return rule.scheme or plain
        return self.scheme if self.scheme is not None and component in self.components else plain


def unquantised_plan(number_format: NumberFormat = BF16) -> QuantisationPlan:
    """The plan of a checkpoint in one plain number format."""
    return QuantisationPlan("none", number_format)


def default_plan(
    scheme: WeightScheme, unquantised: NumberFormat = BF16, *, has_experts: bool = False
) -> QuantisationPlan:
    """What the library that makes `scheme` quantises when it is told nothing else.

    All linear maps of the layers, and not the head; but MXFP4 covers only the routed experts of a model that has them,
    as in gpt-oss.
    """
    if isinstance(scheme, Plain):
        return unquantised_plan(scheme.format)
    components = LINEAR_COMPONENTS
    if isinstance(scheme, Mxfp4) and has_experts:
        components = frozenset({"experts_routed"})
    return QuantisationPlan(_LIBRARIES[type(scheme)], unquantised, scheme, components=components)


_LIBRARIES: dict[type, str] = {
    ScaledEightBit: "fp8 or int8",
    Gptq: "gptq",
    Awq: "awq",
    PackQuantized: "compressed-tensors",
    BitsAndBytesFourBit: "bitsandbytes",
    Mxfp4: "mxfp4",
    Nvfp4: "modelopt",
    Ggml: "llama.cpp",
}
