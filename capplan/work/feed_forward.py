"""Feed-forwards as operators: dense, and mixtures of experts."""

from __future__ import annotations

from capplan.describe.model import Dense, MixtureOfExperts
from capplan.memory.tensors import Tensor
from capplan.memory.tensors import dense as dense_tensors
from capplan.memory.tensors import mixture_of_experts as moe_tensors
from capplan.work.collectives import experts_in, experts_out
from capplan.work.experts import expert_load
from capplan.work.formats import rank_bytes
from capplan.work.operators import GroupedGemm, Number, Operator, Traffic
from capplan.work.projections import Shelf, elementwise, products, remaining
from capplan.work.scope import Scope
from capplan.work.sharding import largest_share, local_experts


def dense(ffn: Dense, scope: Scope) -> list[Operator]:
    """``down(act(gate·x) · up·x)``: ``6·m·H·I`` FLOPs gated, ``4·m·H·I`` plain.

    Source: Shazeer, GLU Variants (arXiv:2002.05202).
    """
    shelf = Shelf(dense_tensors(ffn, scope.hidden))
    operators = _feed_forward(scope, shelf, ffn.intermediate_size, ffn.gated, "mlp", reduce=True)
    return operators + remaining(scope, shelf.rest(), scope.tokens)


def _feed_forward(
    scope: Scope, shelf: Shelf, width: int, gated: bool, component: str, *, reduce: bool, name: str = ""
) -> list[Operator]:
    inner = largest_share(width, scope.sharding.tp)
    prefix = f"{name} " if name else ""
    first = f"{prefix}gate_up_proj" if gated else f"{prefix}up_proj"
    operators = products(scope, first, shelf.take("gate_proj", "up_proj"), scope.tokens)
    operators.append(elementwise(scope, f"{prefix}activation", component, scope.tokens, inner, read=2 if gated else 1))
    return operators + products(scope, f"{prefix}down_proj", shelf.take("down_proj"), scope.tokens, reduce=reduce)


def mixture_of_experts(ffn: MixtureOfExperts, scope: Scope) -> list[Operator]:
    """Router and top-k on every rank, the experts of this rank, the shared experts, one sum over the ranks.

    The router scores ``E + identity`` choices; latent experts stand between two projections of the hidden state.

    Source: Shazeer et al. (arXiv:1701.06538); DeepSeekMoE (arXiv:2401.06066) for shared experts.
    """
    tokens, choices = scope.tokens, ffn.experts + ffn.identity_experts
    shelf = Shelf(moe_tensors(ffn, scope.hidden))
    routed = shelf.take_component("experts_routed")
    operators = products(scope, "router", shelf.take("mlp.gate"), tokens)
    bias = shelf.take("e_score_correction_bias")
    operators.append(elementwise(scope, "top-k", "router", tokens, choices, written=0, weights=bias))
    width = ffn.latent_size or scope.hidden
    operators += products(scope, "latent down-projection", shelf.take("fc1_latent_proj"), tokens)
    operators += experts_in(scope, tokens, ffn.top_k, width)
    operators.append(experts(ffn, scope, routed, width))
    if ffn.shared:
        operators += shared_experts(ffn, scope, shelf)
    operators += experts_out(scope, tokens, ffn.top_k, width)
    operators += products(scope, "latent up-projection", shelf.take("fc2_latent_proj"), tokens)
    return operators + remaining(scope, shelf.rest(), tokens)


def experts(ffn: MixtureOfExperts, scope: Scope, tensors: list[Tensor], width: int) -> Operator:
    """The routed experts of one rank as one grouped product.

    FLOPs ``2·M·H·I·A`` with M matrices (3 gated, else 2) and ``A = T·K·E'/E`` token-expert pairs; the weights of the
    expected ``D = E'(1 - (1 - K/E)^T)`` distinct experts are read once. Tokens are those of all data-parallel groups.
    Activations: tokens in and results out once, and for each pair the inner width written and read (twice as wide
    before a gate), and the result written and read again for the sum.

    Leaves out padding to tiles, and copies of tokens that a kernel gathers for each expert.
    """
    sharding = scope.sharding
    tokens, choices = sharding.dp * scope.tokens, ffn.experts + ffn.identity_experts
    local, inner = local_experts(ffn, sharding), largest_share(ffn.intermediate_size, sharding.moe_tp)
    load = expert_load(scope.routing, ffn.experts, choices, ffn.top_k, local, sharding.ep, tokens)
    matrices = 3 if ffn.gated else 2
    one = sum(rank_bytes(tensor, scope.formats.of(tensor), sharding.moe_tp) for tensor in tensors)
    form = scope.formats.of(tensors[0])
    pair = (2 if ffn.gated else 1) * inner + inner + width
    return Operator(
        kind="grouped_gemm",
        name="experts",
        component="experts_routed",
        shape=GroupedGemm(tokens, load.assignments, ffn.top_k, local, load.distinct, width, inner, matrices),
        flops=2 * matrices * width * inner * load.assignments,
        traffic=Traffic(
            weights=load.distinct * one,
            activations_read=scope.activations(tokens * width) + _real(scope, load.assignments * pair),
            activations_written=scope.activations(tokens * width) + _real(scope, load.assignments * pair),
        ),
        weight_format=form.name,
        activation_format=form.activation or scope.formats.dtype,
    )


def _real(scope: Scope, elements: Number) -> Number:
    """Bytes of an expected number of activations."""
    item = scope.formats.activation_bytes
    return scope.activations(elements) if isinstance(elements, int) else elements * float(item)


def shared_experts(ffn: MixtureOfExperts, scope: Scope, shelf: Shelf) -> list[Operator]:
    """The experts that every token uses, as one feed-forward.

    Its sum over the tensor-parallel ranks is that of the routed experts, unless those act on a latent of another width
    or come back by all-to-all.
    """
    shared = ffn.shared
    assert shared is not None
    inner = ffn.latent_size if shared.latent and ffn.latent_size else scope.hidden
    gate = products(scope, "shared expert gate", shelf.take("shared_expert_gate"), scope.tokens)
    apart = inner != (ffn.latent_size or scope.hidden) or scope.sharding.expert_exchange == "all_to_all"
    operators = _feed_forward(
        scope, shelf, shared.intermediate_size, ffn.gated, "experts_shared", reduce=apart, name="shared"
    )
    added = elementwise(scope, "add shared experts", "experts_shared", scope.tokens, inner, read=2)
    return [*gate, *operators, added]
