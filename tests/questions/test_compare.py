"""Documents side by side, and the cost of a change: figures by hand from two committed documents."""

from __future__ import annotations

import csv
import json
from decimal import Decimal
from pathlib import Path

import pytest

from capplan.cli.app import run
from capplan.errors import InvalidFileError, NotFoundError, UsageError
from capplan.questions.compare import compare
from capplan.questions.cost_diff import cost_diff

DOCUMENTS = Path(__file__).parents[1] / "data" / "documents"
BEFORE, AFTER, PLANS = (str(DOCUMENTS / name) for name in ("cost_before.json", "cost_after.json", "plans.json"))


def test_a_bill_before_and_after() -> None:
    """13.89 h at $3 become 5.56 h at $4.50, and 200 GB at 8 cents come in: $1,267.36 become $760.42 + $16."""
    result = cost_diff(BEFORE, AFTER).result
    gpus, storage = result.lines
    assert (gpus.change, storage.change) == ("~", "+")
    assert gpus.before is not None
    assert round(gpus.before, 2) == Decimal("1267.36")
    assert storage.before is None
    assert storage.after == 16
    assert round(result.after, 2) == Decimal("776.42")
    assert result.delta_per_month == result.after - result.before == sum(line.delta_per_month for line in result.lines)
    assert result.delta_share == pytest.approx(776.4167 / 1267.3611 - 1)
    back = cost_diff(AFTER, BEFORE).result
    assert [line.change for line in back.lines] == ["~", "-"]
    assert back.delta_per_month == -result.delta_per_month
    same = cost_diff(BEFORE, BEFORE).result
    assert {line.change for line in same.lines} == {"="}
    assert same.delta_per_month == 0


def test_growth_beyond_what_is_allowed_fails() -> None:
    assert cost_diff(AFTER, BEFORE).exit_code == 0
    assert cost_diff(AFTER, BEFORE, fail_above=Decimal(490)).exit_code == 1
    assert cost_diff(AFTER, BEFORE, fail_above=Decimal(491)).exit_code == 0


def test_any_growth_can_be_what_fails(capsys: pytest.CaptureFixture[str]) -> None:
    assert run(["diff", AFTER, BEFORE, "--fail-above", "0"]) == 1
    assert run(["diff", BEFORE, BEFORE, "--fail-above", "$0.00"]) == 0
    assert run(["diff", BEFORE, AFTER, "--fail-above", "0"]) == 0
    capsys.readouterr()
    assert run(["diff", BEFORE, AFTER, "--fail-above=-1"]) == 2
    assert "at least 0" in capsys.readouterr().err


def test_csv_has_numbers_in_base_units(capsys: pytest.CaptureFixture[str]) -> None:
    """Against the document itself: milliseconds become seconds, money and rates stay."""
    plans = json.loads(Path(PLANS).read_text(encoding="utf-8"))["result"]["plans"]
    assert run(["compare", PLANS, f"{PLANS}#2", f"{PLANS}#3", "--csv"]) == 0
    rows = {row["figure"]: row for row in csv.DictReader(capsys.readouterr().out.splitlines())}
    assert list(rows["TPOT"]) == ["figure", "unit", "a", "b", "c", "difference", "ratio", "best"]
    for name, key, unit, size in (
        ("TPOT", "tpot_ms", "s", 1e-3),
        ("a month", "cost_per_month", "USD", 1),
        ("requests in time", "request_capacity", "1/s", 1),
    ):
        values = [float(rows[name][letter]) for letter in "abc"]
        assert values == pytest.approx([float(plan[key]) * size for plan in plans[:3]], rel=1e-12)
        assert rows[name]["unit"] == unit
        best = max(values) if name == "requests in time" else min(values)
        assert rows[name]["best"] == "ABC"[values.index(best)]
        assert float(rows[name]["difference"]) == pytest.approx(values[1] - values[0], rel=1e-9)


def test_many_documents_have_names_as_spreadsheets_have(capsys: pytest.CaptureFixture[str]) -> None:
    assert run(["compare", *[BEFORE] * 28, "--csv"]) == 0
    assert capsys.readouterr().out.splitlines()[0].split(",")[27:31] == ["z", "aa", "ab", "difference"]


def test_plans_are_chosen_by_row() -> None:
    plans = json.loads(Path(PLANS).read_text(encoding="utf-8"))["result"]["plans"]
    result = cost_diff(PLANS, f"{PLANS}#2").result
    assert (result.before, result.after) == tuple(Decimal(row["cost_per_month"]) for row in plans[:2])
    figures = {row.name: row for row in compare([PLANS, f"{PLANS}#2", f"{PLANS}#3"]).result.figures}
    assert figures["TPOT"].values == tuple(Decimal(str(row["tpot_ms"])) for row in plans[:3])
    assert figures["TPOT"].best == min(range(3), key=lambda place: plans[place]["tpot_ms"])
    assert figures["requests in time"].best == max(range(3), key=lambda place: plans[place]["request_capacity"])
    assert figures["TPOT"].difference == figures["TPOT"].values[1] - figures["TPOT"].values[0]  # type: ignore[operator]


def test_costs_side_by_side_with_the_settings_that_differ() -> None:
    result = compare([BEFORE, AFTER]).result
    figures = {row.name: row for row in result.figures}
    assert figures["tokens of a replica"].values == (100, 250)
    assert figures["tokens of a replica"].ratio == 2.5
    assert figures["1M tokens"].best == 1
    assert result.settings == {"throughput": ("100", "250"), "price_per_gpu_hour": ("3", "4.5")}


@pytest.mark.parametrize(
    "result",
    [
        '{"plans": [{"gpus": "many", "cost_per_month": 1}]}',
        '{"plans": [{"gpus": 1, "cost_per_month": "dear"}]}',
        '{"plans": [1]}',
        '{"plans": 7}',
    ],
)
def test_plans_that_are_none_are_refused(result: str, tmp_path: Path) -> None:
    file = tmp_path / "plans.json"
    file.write_text(f'{{"schema_version": 1, "command": "plan", "inputs": 3, "result": {result}}}', encoding="utf-8")
    for asked in (cost_diff, lambda *names: compare(names)):
        with pytest.raises((InvalidFileError, NotFoundError)):
            asked(str(file), str(file))


@pytest.mark.parametrize("row", ["0", "99", "²", "x", "-1", "9" * 50, "1.5"])
def test_rows_that_are_none_are_refused(row: str) -> None:
    with pytest.raises(NotFoundError, match="no row"):
        compare([PLANS, f"{PLANS}#{row}"])


def test_lines_that_are_none_are_refused(tmp_path: Path) -> None:
    file = tmp_path / "cost.json"
    for lines, said in (('[{"name": [], "cost_per_month": "x"}]', "no figure"), ("3", ""), ('[1, {"name": {}}]', "")):
        text = f'{{"schema_version": 1, "command": "cost", "result": {{"cost_per_month": 1, "lines": {lines}}}}}'
        file.write_text(text, encoding="utf-8")
        if said:
            with pytest.raises(InvalidFileError, match=said):
                cost_diff(str(file), str(file))
        else:
            assert cost_diff(str(file), str(file)).result.delta_per_month == 0


def test_what_is_no_such_document_is_refused(tmp_path: Path) -> None:
    file = tmp_path / "other.json"
    for text, said in (
        ("{", "valid JSON"),
        ("[1]", "no document"),
        ("{}", "no document"),
        ('{"command": "kv", "result": {}}', "kv"),
        ('{"schema_version": 1, "command": "cost", "result": {"gpus": NaN}}', "gpus is no figure"),
        ('{"schema_version": 1, "command": "cost", "result": {"cost_per_month": "1e999999"}}', "no figure"),
        ('{"schema_version": 1, "command": "cost", "result": {"cost_per_month": "much"}}', "no figure"),
    ):
        file.write_text(text, encoding="utf-8")
        with pytest.raises(InvalidFileError, match=said):
            compare([BEFORE, str(file)])
    file.write_text("[" * 100_000, encoding="utf-8")
    with pytest.raises(InvalidFileError):
        compare([BEFORE, str(file)])
    with pytest.raises(NotFoundError):
        compare([BEFORE, str(tmp_path / "missing.json")])
    with pytest.raises(NotFoundError, match="row"):
        compare([PLANS, f"{PLANS}#99"])
    with pytest.raises(UsageError, match="rows"):
        compare([BEFORE, f"{AFTER}#2"])
    with pytest.raises(UsageError, match="compared"):
        compare([BEFORE])
