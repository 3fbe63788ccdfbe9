"""Tables on terminals of any width: no number and no word is broken as long as one column has room for it."""

from __future__ import annotations

import csv
import io

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from capplan.cli.app import run
from capplan.report.tables import Column, Facts, Table, View, column_widths, parts_of, room, to_rich

PLANS = Table(
    [
        Column("", "row", "integer"), Column("GPUs", "gpus"), Column("engine", "engine"),
        Column("TTFT ms", "ttft_ms", "quantity"), Column("$/1M", "cost_per_1m_tokens", "quantity"),
        Column("$/month", "cost_per_month", "quantity"), Column("at", "provider"),
    ],
    [
        [1, "2 × b200-sxm-180gb", "vllm", 303.53, 0.22, 7300.0, "akash"],
        [2, "12 × h100-pcie-80gb", "trtllm", 1349.55, 0.52, 17432.4, "runpod"],
    ],
    title="Plans",
)  # fmt: skip


def drawn(table: Table, width: int, monkeypatch: pytest.MonkeyPatch) -> str:
    monkeypatch.setenv("COLUMNS", str(width))
    return to_rich(View("headline", (table, Facts([("name", "value")]))), [("assumed", "something")], color=False)


@pytest.mark.parametrize("width", [24, 40, 60, 80, 200])
def test_numbers_and_words_stay_whole(width: int, monkeypatch: pytest.MonkeyPatch) -> None:
    text = drawn(PLANS, width, monkeypatch)
    assert max(map(len, text.splitlines())) <= width
    for word in ("b200-sxm-180gb", "h100-pcie-80gb", "303.53", "1,349.55", "17,432.40", "runpod", "engine", "trtllm"):
        assert word in text, word


@pytest.mark.parametrize("width", [0, 1, 19])
def test_a_terminal_without_a_width_gets_the_answer(width: int, monkeypatch: pytest.MonkeyPatch) -> None:
    text = drawn(PLANS, width, monkeypatch)
    assert all(word in text for word in ("headline", "303.53", "something"))


def test_a_wide_terminal_has_one_table(monkeypatch: pytest.MonkeyPatch) -> None:
    lines = drawn(PLANS, 200, monkeypatch).splitlines()
    row = next(line for line in lines if "akash" in line)
    assert row.split() == ["1", "2", "×", "b200-sxm-180gb", "vllm", "303.53", "0.22", "7,300.00", "akash"]


def test_parts_begin_with_what_tells_rows_apart() -> None:
    parts = parts_of(PLANS, 40)
    assert len(parts) > 1
    assert {part.columns[0].name for part in parts} == {"row"}
    assert [row[0] for row in parts[-1].rows] == [1, 2]
    alike = Table(
        [Column("section", "a"), Column("line", "b"), *(Column("number", f"n{i}", "quantity") for i in range(9))],
        [["usage", "power", *[1e6] * 9], ["usage", "disks", *[2e6] * 9]],
    )
    assert {tuple(column.name for column in part.columns[:2]) for part in parts_of(alike, 50)} == {("a", "b")}


def test_csv_has_numbers_where_people_see_factors(capsys: pytest.CaptureFixture[str]) -> None:
    command = ["advise", "--model", "llama3.1-8b", "--gpu", "h100", "--isl", "512", "--osl", "64", "--concurrency", "8"]
    assert run(command) == 0
    shown = capsys.readouterr().out
    assert run([*command, "--csv"]) == 0
    rows = list(csv.DictReader(io.StringIO(capsys.readouterr().out)))
    for row in rows:
        for name in ("gain", "throughput_gain", "cost_gain"):
            assert not row[name] or f"{float(row[name]):.2f}x" in shown


texts = st.text("abc ", min_size=0, max_size=30)


@settings(max_examples=100, deadline=None)
@given(st.integers(1, 8), st.lists(st.lists(texts, min_size=8, max_size=8), max_size=4), st.integers(70, 200))
def test_every_column_is_in_one_part(columns: int, rows: list[list[str]], width: int) -> None:
    """All of them, in order, the repeated ones apart; and each part fits, since two words of 30 letters do."""
    table = Table([Column(f"c{i}", f"c{i}") for i in range(columns)], [row[:columns] for row in rows])
    parts = parts_of(table, width)
    names = [column.name for part in parts for column in part.columns]
    assert list(dict.fromkeys(names)) == [f"c{i}" for i in range(columns)]
    for part in parts:
        widths = column_widths(part, width)
        assert all(size >= 0 for size in widths)
        assert sum(widths) <= room(len(widths), width)
        assert [len(row) for row in part.rows] == [len(part.columns)] * len(rows)
