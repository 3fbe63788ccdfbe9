"""How the KV answers look."""

from __future__ import annotations

from capplan.questions.answer import Answer
from capplan.questions.kv import KvPaging, KvResult, KvTable
from capplan.report.tables import Column, Facts, Table, View
from capplan.report.units import show_bytes

_FACTOR_TITLES = {
    "layers": "layers",
    "kv_heads": "KV heads",
    "head_dim": "head dim",
    "seq": "tokens",
    "batch": "sequences",
    "kv_cache_dtype": "KV dtype",
    "tensor_parallel_size": "tp",
}


def kv_view(answer: Answer[KvResult]) -> View:
    """The headline figure, the totals, and one row a kind of layer."""
    result, inputs = answer.result, answer.inputs
    sequences = "one sequence" if inputs["batch"] == 1 else f"{inputs['batch']:,} sequences"
    headline = (
        f"{inputs['model']}: {show_bytes(result.total_bytes)} for {sequences} of {inputs['seq']:,} tokens"
        f" ({inputs['kv_cache_dtype']})"
    )
    pairs = [("KV cache", _both(result.kv_bytes))]
    if result.state_bytes:
        pairs.append(("fixed states", _both(result.state_bytes)))
    pairs.append(("one more token", f"{result.bytes_per_token:,} bytes"))
    if inputs["tensor_parallel_size"] > 1:
        pairs.append((f"largest of {inputs['tensor_parallel_size']} ranks", _both(result.per_rank_bytes)))
    columns = [
        Column("layers", "layers", "integer"),
        Column("kind", "kind"),
        Column("name", "name"),
        Column("cache", "kv_bytes", "bytes"),
        Column("state", "state_bytes", "bytes"),
        Column("bytes", "bytes", "integer"),
    ]
    rows = [
        [group.layers, group.kind, group.name, group.kv_bytes, group.state_bytes, group.bytes]
        for group in result.groups
    ]
    table = Table(columns, rows, title="By layer group")
    blocks = (_paging(result.paging),) if result.paging else ()
    return View(headline, (Facts(pairs), *blocks, table))


def _paging(paging: KvPaging) -> Facts:
    """Blocks, what the last one loses, and what a reservation of the maximum would."""
    lost = f"{paging.lost_tokens:,} of {paging.allocated_tokens:,} tokens ({100 * paging.lost_share:.1f} %)"
    reserved = f"{paging.reservation_lost_tokens:,} of {paging.reserved_tokens:,} tokens"
    return Facts(
        [
            ("blocks of one sequence", f"{paging.blocks:,} of {paging.block_size:,} tokens"),
            ("lost in the last block", lost),
            ("all blocks", _both(paging.allocated_bytes)),
            ("a reservation would lose", f"{reserved} ({100 * paging.reservation_lost_share:.1f} %)"),
            ("and take", _both(paging.reserved_bytes)),
        ],
        title="In blocks",
    )


def kv_table_view(answer: Answer[KvTable]) -> View:
    """One row a combination."""
    result = answer.result
    names = list(result.rows[0].factors) if result.rows else []
    shown = [name for name in names if name in result.varied]
    fixed = [(name, result.rows[0].factors[name]) for name in names if name not in result.varied]
    columns = [Column(_FACTOR_TITLES.get(name, name), name, _kind(name)) for name in shown]
    columns += [Column("KV cache + state", "total_bytes", "bytes"), Column("bytes", "total_bytes_exact", "integer")]
    rows = [[*(row.factors[name] for name in shown), row.total_bytes, row.total_bytes] for row in result.rows]
    subject = answer.inputs["model"] or "2·L·B·S·Hkv·D·b"
    rest = ", ".join(f"{_FACTOR_TITLES.get(name, name)} {value}" for name, value in fixed)
    return View(f"{subject} ({rest})" if rest else str(subject), (Table(columns, rows),))


def _kind(name: str) -> str:
    return "text" if name == "kv_cache_dtype" else "integer"


def _both(value: int) -> str:
    return f"{show_bytes(value)}  ({value:,} bytes)"
