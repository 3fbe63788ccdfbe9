"""``capplan kv``: bytes of the KV cache and states."""

from __future__ import annotations

from typing import TYPE_CHECKING, Annotated, Any

import typer

from capplan.cli.options import IgnoreKey, Model, ModelsDir, TensorParallel
from capplan.cli.output import answers
from capplan.describe.quantities import parse_integer, parse_list, parse_tokens
from capplan.errors import UsageError
from capplan.questions.answer import Answer
from capplan.questions.kv import KvTable, kv, kv_table

if TYPE_CHECKING:
    from capplan.report.tables import View

app = typer.Typer(add_completion=False, rich_markup_mode=None)

_PARSERS = {"seq": parse_tokens, "source_seq": parse_tokens, "kv_cache_dtype": lambda text, flag: text}


def _view(answer: Answer[Any]) -> View:
    from capplan.report.views.kv import kv_table_view, kv_view

    return kv_table_view(answer) if isinstance(answer.result, KvTable) else kv_view(answer)


@app.command("kv")
@answers(_view)
def command(
    seq: Annotated[str, typer.Option("--seq", help="Tokens in the context: 4096, 8k, 1M.")],
    model: Model = None,
    batch: Annotated[str, typer.Option("--batch", help="Sequences.")] = "1",
    kv_cache_dtype: Annotated[
        str, typer.Option("--kv-cache-dtype", help="bf16, fp16, fp32, fp8, int8, q8_0 ...")
    ] = "bf16",
    tensor_parallel_size: TensorParallel = "1",
    source_seq: Annotated[
        str | None, typer.Option("--source-seq", help="Tokens of an encoder's input [--seq].")
    ] = None,
    images: Annotated[str | None, typer.Option("--images", help="Images a sequence.")] = None,
    image_tokens: Annotated[str | None, typer.Option("--image-tokens", help="Tokens of one image.")] = None,
    block_size: Annotated[
        str | None, typer.Option("--block-size", help="Tokens of a block: show what blocks lose.")
    ] = None,
    max_model_len: Annotated[
        str | None, typer.Option("--max-model-len", help="A reservation to compare blocks with [the model's length].")
    ] = None,
    layers: Annotated[str | None, typer.Option("--layers", help="L, without a model.")] = None,
    kv_heads: Annotated[str | None, typer.Option("--kv-heads", help="Hkv, without a model.")] = None,
    head_dim: Annotated[str | None, typer.Option("--head-dim", help="D, without a model.")] = None,
    models_dir: ModelsDir = [],
    ignore_key: IgnoreKey = [],
) -> Answer[Any]:
    """Bytes of the KV cache and states of a model, per layer group.

    Every factor may be a list with commas: the answer is then a table.
    """
    given = {
        "layers": layers,
        "kv_heads": kv_heads,
        "head_dim": head_dim,
        "seq": seq,
        "batch": batch,
        "kv_cache_dtype": kv_cache_dtype,
        "tensor_parallel_size": tensor_parallel_size,
        "source_seq": source_seq,
        "images": images,
        "image_tokens": image_tokens,
    }
    factors: dict[str, list[Any]] = {
        name: parse_list(text, _PARSERS.get(name, parse_integer), f"--{name.replace('_', '-')}")
        for name, text in given.items()
        if text is not None
    }
    if all(len(values) == 1 for values in factors.values()):
        single = {name: values[0] for name, values in factors.items()}
        size = parse_tokens(block_size, "--block-size") if block_size else None
        longest = parse_tokens(max_model_len, "--max-model-len") if max_model_len else None
        return kv(
            model, **single, block_size=size, max_model_len=longest, models_dirs=models_dir, ignore_keys=ignore_key
        )
    if block_size or max_model_len:
        raise UsageError("blocks are shown for one combination", where="--block-size", hint="give no lists")
    return kv_table(model, factors=factors, models_dirs=models_dir, ignore_keys=ignore_key)
