"""Linear attention and state-space mixers as operators: projections, convolution, the recurrence, the way out.

All of them keep a state of fixed size a sequence. A step reads it where the sequence has been here before and writes
it back; verifying several drafted tokens writes one state a token, so that rejected ones can be undone.

FLOPs of the recurrences are those of the recurrent form. Kernels for prefill work on tiles of a chunk of positions,
which trades some more FLOPs for matrix products; that is theirs and is left out here.
"""

from __future__ import annotations

from collections.abc import Sequence

from capplan.arrays import is_number, present
from capplan.describe.model import (
    GatedDeltaNet,
    KimiDeltaAttention,
    LightningAttention,
    Mamba,
    Mamba2,
    RecurrentGatedLru,
    ShortConvolution,
)
from capplan.memory import recurrent_state as states
from capplan.memory import tensors as inventory
from capplan.memory.recurrent_state import StateTensor
from capplan.memory.tensors import Tensor
from capplan.work.attention_kernel import PHASES
from capplan.work.formats import rank_bytes
from capplan.work.operators import Gemm, Kind, Number, Operator, Rows, ScanShape, Traffic
from capplan.work.projections import Shelf, elementwise, products, remaining, weights_of
from capplan.work.scope import Phase, Scope, over
from capplan.work.sharding import largest_share, rank_matrix

COMPONENT = "linear_mixer"


def gated_delta_net(mixer: GatedDeltaNet, scope: Scope) -> list[Operator]:
    """``S ← α·S + β·k·(v - Sᵀk)ᵀ``, ``o = Sᵀq`` on a state ``Dk x Dv`` a value head: ``7·Dk·Dv`` FLOPs a token each.

    Decay 1, prediction ``Sᵀk`` 2, rank-one update 2, read-out 2, each times ``Dk·Dv``.

    Source: Yang et al., Gated Delta Networks (arXiv:2412.06464), equation 10.
    """
    tp = scope.sharding.tp
    heads, keys = largest_share(mixer.value_heads, tp), largest_share(mixer.key_heads, tp)
    width, tokens = heads * mixer.value_dim, scope.tokens
    shelf = Shelf(inventory.gated_delta_net(mixer, scope.hidden))
    wide = shelf.take("in_proj_qkvz", "in_proj_qkv", "in_proj_z", "q_proj", "k_proj", "v_proj", "g_proj")
    operators = products(scope, "in_proj_qkvz", wide, tokens)
    narrow = shelf.take("in_proj_ba", "in_proj_b", "in_proj_a", "a_proj", "b_proj")
    operators += products(scope, "in_proj_ba", narrow, tokens)
    convolved = 2 * keys * mixer.key_dim + width
    operators.append(elementwise(scope, "split q, k, v, z", COMPONENT, tokens, convolved + width))
    memory = states.gated_delta_net(mixer)
    operators += convolution(scope, convolved, mixer.conv_kernel, shelf.take("conv1d"), memory[0])
    gates = shelf.take("dt_bias", "A_log")
    operators.append(elementwise(scope, "decay and beta", COMPONENT, tokens, 2 * heads, weights=gates))
    operators += recurrence(
        scope, "delta rule", "linear_attention", heads, mixer.key_dim, mixer.value_dim, 7, memory[1]
    )
    norm = shelf.take("norm", "o_norm")
    operators.append(
        elementwise(
            scope, "gated norm", COMPONENT, tokens, width, read=1 + mixer.output_gate, weights=norm, kind="norm"
        )
    )
    operators += products(scope, "out_proj", shelf.take("out_proj", "o_proj"), tokens)
    return operators + remaining(scope, shelf.rest(), tokens)


def kimi_delta_attention(mixer: KimiDeltaAttention, scope: Scope) -> list[Operator]:
    """The delta rule with a decay a channel: ``7·D²`` FLOPs a token and head, as the gated delta rule.

    Source: Kimi Linear (arXiv:2510.26692), section 3.
    """
    heads = largest_share(mixer.heads, scope.sharding.tp)
    width, tokens = heads * mixer.head_dim, scope.tokens
    shelf = Shelf(inventory.kimi_delta_attention(mixer, scope.hidden))
    operators = products(scope, "qkv_proj", shelf.take("q_proj", "k_proj", "v_proj", "g_proj", "b_proj"), tokens)
    operators += products(scope, "gate down-projections", shelf.take("f_a_proj", "g_a_proj"), tokens)
    operators += products(scope, "f_b_proj", shelf.take("f_b_proj"), tokens)
    operators += products(scope, "g_b_proj", shelf.take("g_b_proj"), tokens)
    memory = states.kimi_delta_attention(mixer)
    operators += convolution(scope, 3 * width, mixer.conv_kernel, shelf.take("conv1d"), memory[0])
    gates = shelf.take("dt_bias", "A_log")
    operators.append(elementwise(scope, "decay and beta", COMPONENT, tokens, width + heads, weights=gates))
    operators += recurrence(
        scope, "delta rule", "linear_attention", heads, mixer.head_dim, mixer.head_dim, 7, memory[1]
    )
    norm = shelf.take("o_norm")
    operators.append(elementwise(scope, "gated norm", COMPONENT, tokens, width, read=2, weights=norm, kind="norm"))
    operators += products(scope, "o_proj", shelf.take("o_proj"), tokens)
    return operators + remaining(scope, shelf.rest(), tokens)


def lightning_attention(mixer: LightningAttention, scope: Scope) -> list[Operator]:
    """``S ← λ·S + k·vᵀ``, ``o = Sᵀq`` on a state ``D x D`` a head: ``5·D²`` FLOPs a token and head.

    Source: MiniMax-01 (arXiv:2501.08313), section 2.2.
    """
    heads = largest_share(mixer.heads, scope.sharding.tp)
    width, tokens = heads * mixer.head_dim, scope.tokens
    shelf = Shelf(inventory.lightning_attention(mixer, scope.hidden))
    operators = products(scope, "qkv_proj", shelf.take("qkv_proj", "output_gate"), tokens)
    operators.append(elementwise(scope, "activation", COMPONENT, tokens, 3 * width))
    memory = states.lightning_attention(mixer)
    operators += recurrence(
        scope, "linear attention", "linear_attention", heads, mixer.head_dim, mixer.head_dim, 5, memory[0]
    )
    norm = shelf.take("norm")
    operators.append(elementwise(scope, "gated norm", COMPONENT, tokens, width, read=2, weights=norm, kind="norm"))
    operators += products(scope, "out_proj", shelf.take("out_proj"), tokens)
    return operators + remaining(scope, shelf.rest(), tokens)


def mamba(mixer: Mamba, scope: Scope) -> list[Operator]:
    """``h ← exp(ΔA)·h + Δ·B·x``, ``y = C·h + D·x`` on N states a channel: ``7·N + 2`` FLOPs a token and channel.

    ΔA 1, decay 1, Δ·x·B 2, sum 1, C·h 2, each times N; the skip connection 2. Exponentials are not counted.

    Source: Gu and Dao, Mamba (arXiv:2312.00752), algorithm 2.
    """
    inner, tokens = largest_share(mixer.inner, scope.sharding.tp), scope.tokens
    shelf = Shelf(inventory.mamba(mixer, scope.hidden))
    operators = products(scope, "in_proj", shelf.take("in_proj"), tokens)
    memory = states.mamba(mixer)
    operators += convolution(scope, inner, mixer.conv_kernel, shelf.take("conv1d"), memory[0])
    operators += products(scope, "x_proj", shelf.take("x_proj"), tokens)
    if mixer.inner_norms:
        norms = shelf.take("dt_layernorm", "b_layernorm", "c_layernorm")
        width = mixer.dt_rank + 2 * mixer.state
        operators.append(elementwise(scope, "dt, B, C norms", COMPONENT, tokens, width, weights=norms, kind="norm"))
    operators += products(scope, "dt_proj", shelf.take("dt_proj"), tokens)
    parameters = shelf.take("A_log", "D")
    operators += recurrence(scope, "selective scan", "scan", inner, 1, mixer.state, 7, memory[1], parameters, skip=2)
    operators += products(scope, "out_proj", shelf.take("out_proj"), tokens)
    return operators + remaining(scope, shelf.rest(), tokens)


def mamba2(mixer: Mamba2, scope: Scope) -> list[Operator]:
    """``S ← a·S + Δ·x·Bᵀ``, ``y = S·C + D·x`` on a state ``P x N`` a head: ``5·P·N + 3·P`` FLOPs a token and head.

    Decay 1, rank-one update 2, read-out 2, each times ``P·N``; Δ·x 1 and the skip connection 2, times P.

    Source: Dao and Gu, Mamba-2 (arXiv:2405.21060), section 7.
    """
    heads, tokens = largest_share(mixer.heads, scope.sharding.tp), scope.tokens
    width = heads * mixer.head_dim
    shelf = Shelf(inventory.mamba2(mixer, scope.hidden))
    operators = products(scope, "in_proj", shelf.take("in_proj"), tokens)
    memory, kernels = states.mamba2(mixer), shelf.take("conv1d")
    channels = rank_matrix(kernels[0], scope.sharding.tp)[0]
    operators += convolution(scope, channels, mixer.conv_kernel, kernels, memory[0])
    parameters = shelf.take("dt_bias", "A_log", "D")
    operators += recurrence(
        scope, "state-space scan", "scan", heads, mixer.head_dim, mixer.state, 5, memory[1], parameters,
        skip=3 * mixer.head_dim,
    )  # fmt: skip
    norm = shelf.take("norm")
    operators.append(elementwise(scope, "gated norm", COMPONENT, tokens, width, read=2, weights=norm, kind="norm"))
    operators += products(scope, "out_proj", shelf.take("out_proj"), tokens)
    return operators + remaining(scope, shelf.rest(), tokens)


def rg_lru(mixer: RecurrentGatedLru, scope: Scope) -> list[Operator]:
    """``h ← a·h + √(1 - a²)·(i·x)`` elementwise, with gates from block-diagonal products: ``4`` FLOPs a channel.

    The two gates: ``2·W·(W/h)`` FLOPs a token each, in h blocks.

    Source: De et al., Griffin (arXiv:2402.19427), section 2.4.
    """
    width, tokens = largest_share(mixer.width, scope.sharding.tp), scope.tokens
    shelf = Shelf(inventory.rg_lru(mixer, scope.hidden))
    operators = products(scope, "linear_x + linear_y", shelf.take("linear_x", "linear_y"), tokens)
    memory = states.rg_lru(mixer)
    operators += convolution(scope, width, mixer.conv_kernel, shelf.take("conv_1d"), memory[0])
    for gate in ("input_gate", "recurrent_gate"):
        operators.append(block_diagonal(scope, gate, shelf.take(f"{gate}_weight", f"{gate}_bias"), tokens))
    parameter = shelf.take("recurrent_param")
    operators += recurrence(scope, "gated recurrence", "scan", width, 1, 1, 4, memory[1], parameter)
    operators.append(elementwise(scope, "branch gate", COMPONENT, tokens, width, read=2))
    operators += products(scope, "linear_out", shelf.take("linear_out"), tokens)
    return operators + remaining(scope, shelf.rest(), tokens)


def short_convolution(mixer: ShortConvolution, scope: Scope) -> list[Operator]:
    """``C · conv(B · x)``: three branches, two gates and a depthwise convolution of the hidden width.

    Source: Liquid AI, LFM2 technical report (2025), section 2.
    """
    width, tokens = largest_share(scope.hidden, scope.sharding.tp), scope.tokens
    shelf = Shelf(inventory.short_convolution(mixer, scope.hidden))
    operators = products(scope, "in_proj", shelf.take("in_proj"), tokens)
    operators.append(elementwise(scope, "input gate", COMPONENT, tokens, width, read=2))
    state = states.convolution(scope.hidden, mixer.conv_kernel)
    operators += convolution(scope, width, mixer.conv_kernel, shelf.take("conv.conv"), state)
    operators.append(elementwise(scope, "output gate", COMPONENT, tokens, width, read=2))
    operators += products(scope, "out_proj", shelf.take("out_proj"), tokens)
    return operators + remaining(scope, shelf.rest(), tokens)


def convolution(
    scope: Scope, channels: Number, kernel: int, tensors: Sequence[Tensor], state: StateTensor
) -> list[Operator]:
    """A causal depthwise convolution: ``2·kernel`` FLOPs a token and channel, and its last inputs kept as a state."""
    tokens = scope.tokens
    read, written = state_traffic(scope, state)
    return [
        Operator(
            kind="elementwise",
            name="convolution",
            component=COMPONENT,
            shape=Rows(tokens, channels),
            flops=2 * kernel * channels * tokens,
            traffic=Traffic(
                weights=weights_of(scope, tensors),
                state_read=read,
                state_written=written,
                activations_read=scope.activations(tokens * channels),
                activations_written=scope.activations(tokens * channels),
            ),
            activation_format=scope.formats.dtype,
        )
    ]


def recurrence(
    scope: Scope,
    name: str,
    kind: Kind,
    heads: Number,
    key_dim: int,
    value_dim: int,
    per_element: int,
    state: StateTensor,
    parameters: Sequence[Tensor] = (),
    *,
    skip: int = 0,
) -> list[Operator]:
    """The recurrence of `heads` states of ``key_dim x value_dim``, one kernel a phase.

    ``per_element·Dk·Dv + skip`` FLOPs a token and head. Inputs and outputs a token: a query and a key (or B and C) of
    ``Dk`` elements and a value and an output of ``Dv`` a head.
    """
    operators = []
    for phase in PHASES:
        spans = scope.phase(phase)
        if not spans:
            continue
        tokens, sequences = over(spans, lambda span: span.tokens), over(spans, lambda span: 1)
        read, written = state_traffic(scope, state, phase)
        operators.append(
            Operator(
                kind=kind,
                name=name,
                component=COMPONENT,
                shape=ScanShape(sequences, tokens, heads, key_dim, value_dim),
                count=1 if is_number(sequences) else present(sequences),
                flops=tokens * heads * (per_element * key_dim * value_dim + skip),
                traffic=Traffic(
                    weights=weights_of(scope, parameters),
                    state_read=read,
                    state_written=written,
                    activations_read=scope.activations(tokens * heads * (2 * key_dim + value_dim)),
                    activations_written=scope.activations(tokens * heads * value_dim),
                ),
                activation_format=scope.formats.dtype,
            )
        )
    return operators


def state_traffic(scope: Scope, state: StateTensor, phase: Phase | None = None) -> tuple[Number, Number]:
    """Bytes of a state read (if something came before) and written (once a piece of prefill, once a decode token)."""
    size = rank_state_bytes(state, scope.sharding.tp)
    prefill = scope.prefill if phase in (None, "prefill") else ()
    decode = scope.decode if phase in (None, "decode") else ()
    read = over((*prefill, *decode), lambda span: present(span.prefix))
    written = over(prefill, lambda span: 1) + over(decode, lambda span: span.tokens)
    return read * size, written * size


def rank_state_bytes(state: StateTensor, tp: Number) -> Number:
    """Bytes of one sequence's state on the rank that holds most; broadcasts over `tp`."""
    return state.bytes if state.split is None else state.bytes // state.split * largest_share(state.split, tp)


def block_diagonal(scope: Scope, name: str, tensors: Sequence[Tensor], tokens: Number) -> Operator:
    """A product with one small square matrix a head: ``2·m·h·w²`` FLOPs."""
    matrix = tensors[0]
    heads, rows, columns = rank_matrix(matrix, scope.sharding.tp)
    form = scope.formats.of(matrix)
    biases = weights_of(scope, tensors[1:])
    return Operator(
        kind="gemm",
        name=name,
        component=COMPONENT,
        shape=Gemm(tokens, rows, columns, batch=heads),
        flops=2 * tokens * heads * rows * columns,
        traffic=Traffic(
            weights=rank_bytes(matrix, form, scope.sharding.tp) + biases,
            activations_read=scope.activations(tokens * heads * columns),
            activations_written=scope.activations(tokens * heads * rows),
        ),
        weight_format=form.name,
        activation_format=scope.formats.dtype,
    )
