"""GPU prices: the shipped table read here on its own, its mapping to the catalog, offers, age and imports."""

from __future__ import annotations

import csv
import datetime
import os
import zipfile
from decimal import Decimal
from fractions import Fraction
from pathlib import Path

import pytest

from capplan.cost.hire import HireBook
from capplan.cost.price_import import import_prices, write_prices
from capplan.cost.price_table import COLUMNS, date_range, gpu_names, load_prices, money, price_to_row, provider_id
from capplan.cost.prices import age_days, best_offer, find_prices, is_stale, list_prices, price_warnings, show_prices
from capplan.describe.catalog import find_entry, list_entries
from capplan.errors import InvalidFileError, NotFoundError, UsageError
from capplan.questions.prices import price_list

TABLE = Path(__file__).resolve().parents[2] / "hardware" / "prices"
ON = datetime.date(2026, 11, 29)

with (TABLE / "gpu_prices.csv").open(newline="", encoding="utf-8") as file:
    ROWS = list(csv.DictReader(file))


@pytest.fixture(autouse=True)
def no_user_path(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("CAPPLAN_PATH", raising=False)


def test_every_row_is_read_exactly() -> None:
    prices = load_prices()
    assert len(prices) == len(ROWS) == 743
    for price, row in zip(prices, ROWS, strict=True):
        assert price_to_row(price) == row
        assert str(price.usd_per_instance_hour) == row["usd_per_instance_hour"]
        per_gpu = Fraction(price.usd_per_instance_hour) / price.gpus_per_instance
        assert abs(per_gpu / Fraction(price.usd_per_gpu_hour) - 1) < Fraction(1, 100_000)


def test_every_name_maps_to_the_catalog_or_says_why_not() -> None:
    names = gpu_names()
    stems = {path.stem for path in list_entries("hardware")}
    assert {row["gpu"] for row in ROWS} <= set(names)
    for listed, name in names.items():
        assert set(name.gpus) <= stems, listed
        assert bool(name.reason) == (len(name.gpus) != 1), listed
    for row in ROWS:  # where the table uses a catalog title, the catalog itself must agree with the map
        if "not stated" not in row["gpu"]:
            assert names[row["gpu"]].gpus == (find_entry("hardware", row["gpu"]).stem,)


def test_every_provider_has_a_short_name() -> None:
    with (TABLE / "providers.csv").open(newline="", encoding="utf-8") as providers:
        listed = {row["listed_name"] for row in csv.DictReader(providers)}
    assert {row["provider"] for row in ROWS} <= listed
    for name in ("Verda (DataCrunch)", "Datacrunch", "gpuhunt datacrunch"):
        assert provider_id(name) == "verda"
    assert provider_id("lambdalabs") == provider_id("Lambda") == "lambda"
    assert provider_id("My Own Cloud!") == "my-own-cloud"


# H100 SXM, on demand, per GPU-hour, autumn 2026: the collected summary of the same sources.
@pytest.mark.parametrize(
    ("provider", "usd"),
    [("runpod", "2.69"), ("lambda", "3.99"), ("nebius", "3.85"), ("aws", "6.88"), ("azure", "12.29")],
)
def test_h100_list_prices_of_autumn_2026(provider: str, usd: str) -> None:
    offer = best_offer("h100", 8, provider, on=ON, same_host=8)
    assert offer.price.usd_per_gpu_hour == Decimal(usd)
    assert offer.usd_per_hour == Decimal(usd) * 8
    assert (offer.gpus, offer.warnings) == (8, ())


def test_gcp_is_old_enough_to_warn() -> None:
    offer = best_offer("h100", 8, "gcp", region="us-central1", on=ON, same_host=8)
    assert (offer.price.instance, offer.usd_per_hour) == ("a3-highgpu-8g", Decimal("88.49"))
    assert "122 days old" in offer.warnings[0]


def test_aws_cut_its_prices_in_2025() -> None:
    # 98.32 before June 2025, 55.04 after, for 8 x H100.
    now = find_prices("h100", "aws", "on-demand", on=ON)
    assert {p.usd_per_instance_hour for p in now if p.instance == "p5.48xlarge"} == {Decimal("55.04")}


def test_the_newest_price_known_on_a_day_is_the_offer() -> None:
    # RunPod's secure cloud, H100 SXM: 3.29 -> 3.49 -> 3.99 on 2026-08-19, 09-25, 11-09.
    for day, usd in (("2026-08-19", "3.29"), ("2026-09-25", "3.49"), ("2026-11-10", "3.99")):
        found = find_prices("h100", "runpod", on=datetime.date.fromisoformat(day))
        secure = {p.usd_per_gpu_hour for p in found if p.pricing_type == "on-demand secure"}
        assert secure == {Decimal(usd)}, day


def test_whole_instances_are_bought() -> None:
    offer = best_offer("h100", 9, "aws", on=ON, same_host=8)
    assert (offer.instances, offer.gpus, offer.usd_per_hour) == (2, 16, 2 * Decimal("55.04"))


def test_gpus_of_one_replica_stand_in_one_host() -> None:
    assert best_offer("t4", 4, "aws", on=ON).price.gpus_per_instance == 1
    assert best_offer("t4", 4, "aws", on=ON, same_host=4).price.gpus_per_instance >= 4


def test_shares_of_a_gpu_are_never_put_together() -> None:
    sixths = [p for p in load_prices() if p.gpus_per_instance == Fraction(1, 6)]
    assert len(sixths) == 4
    assert all(not p.offered for p in sixths)
    with pytest.raises(NotFoundError) as caught:
        best_offer("a10", 1, "azure", on=ON)
    assert "azure" not in caught.value.hint


def test_trends_and_assumptions_are_not_offers() -> None:
    assert all(not p.historic and p.commitment != "assumed" for p in find_prices(on=ON))
    assert any(p.historic for p in find_prices("a100-40gb", on=ON, history=True))
    assumed = find_prices("h800", commitment="assumed", on=ON)
    assert [(p.provider, p.usd_per_gpu_hour) for p in assumed] == [("assumed", Decimal(2))]
    with pytest.raises(NotFoundError):
        best_offer("h800", on=ON)


def test_an_unstated_form_factor_counts_only_where_nothing_better_is_known() -> None:
    found = find_prices("h100-pcie", on=ON)
    assert [p.exact_gpu for p in found] == sorted((p.exact_gpu for p in found), reverse=True)
    assert any(not p.exact_gpu for p in found)
    assert best_offer("h100-pcie", on=ON).price.exact_gpu
    unsure = next(p for p in found if not p.exact_gpu)
    assert "another form factor" in " ".join(price_warnings(unsure, "h100-pcie-80gb", ON))


def test_age() -> None:
    price = next(p for p in load_prices() if p.date == "2026-09-25")
    assert age_days(price, datetime.date(2026, 9, 30)) == 5
    assert not is_stale(price, datetime.date(2026, 12, 24))
    assert is_stale(price, datetime.date(2026, 12, 25))
    vague = next(p for p in load_prices() if p.date == "2025-11..2026-08")
    assert age_days(vague, datetime.date(2025, 11, 2)) == 1


@pytest.mark.parametrize(
    ("text", "first", "last"),
    [
        ("2026-09-25", "2026-09-25", "2026-09-25"),
        ("2026-02", "2026-02-01", "2026-02-28"),
        ("2024-02", "2024-02-01", "2024-02-29"),
        ("2025-12", "2025-12-01", "2025-12-31"),
        ("2026", "2026-01-01", "2026-12-31"),
        ("2025-11..2026-08", "2025-11-01", "2026-08-31"),
        ("older catalog version (2025)", "2025-01-01", "2025-12-31"),
    ],
)
def test_dates(text: str, first: str, last: str) -> None:
    assert [day.isoformat() for day in date_range(text, "here")] == [first, last]


@pytest.mark.parametrize("text", ["", "yesterday", "2026-13", "2026-02-30", "0000", "2026-01..2026-02..2026-03"])
def test_bad_dates(text: str) -> None:
    with pytest.raises(InvalidFileError):
        date_range(text, "here")


@pytest.mark.parametrize("text", ["", "nan", "inf", "-1", "0", "1e9", "free", "1" * 50, "0." + "0" * 30 + "1", "٣"])
def test_bad_money(text: str) -> None:
    if text == "٣":
        assert money(text, "here") == 3  # a digit all the same
        return
    with pytest.raises(InvalidFileError):
        money(text, "here")


def test_what_is_not_sold_names_who_sells() -> None:
    for arguments, hint in (
        ({"gpu": "h100", "provider": "lamda"}, "lambda"),
        ({"gpu": "h100", "provider": "vast", "commitment": "reserved"}, "vast has it as on-demand"),
        ({"gpu": "mi300x", "provider": "aws"}, "crusoe"),
        ({"gpu": "gaudi3"}, "--price-per-gpu-hour"),
        ({"gpu": "h1000"}, "h100"),
    ):
        with pytest.raises(NotFoundError) as caught:
            best_offer(**arguments, on=ON)  # type: ignore[arg-type]
        assert hint in caught.value.hint, arguments


def test_the_list_spans_the_offers() -> None:
    lines = list_prices("h100", on=ON)
    aws = next(
        line for line in lines if (line.gpu, line.provider, line.commitment) == ("h100-sxm-80gb", "aws", "on-demand")
    )
    assert (aws.lowest_usd_per_gpu_hour, aws.highest_usd_per_gpu_hour, aws.stale) == (
        Decimal("6.88"),
        Decimal("6.88"),
        False,
    )
    assert {line.provider for line in list_prices(on=ON)} >= {"aws", "gcp", "azure", "lambda", "runpod", "nebius"}


def test_show_takes_a_gpu_or_a_provider() -> None:
    by_gpu, by_provider = show_prices("H100", ON), show_prices("Lambda", ON)
    assert (by_gpu.name, by_provider.name) == ("h100-sxm-80gb", "lambda")
    assert by_gpu.offers
    assert {p.provider for p in by_provider.offers} == {"lambda"}
    assert not set(by_gpu.offers) & set(by_gpu.history)
    with pytest.raises(NotFoundError) as caught:
        show_prices("runpood", ON)
    assert "runpod" in caught.value.hint


GPUHUNT_V1 = """instance_name,location,price,cpu,memory,gpu_count,gpu_name,gpu_memory,spot,disk_size
p5.48xlarge,us-east-1,98.32,192,2048.0,8,H100,80.0,False,
p5.48xlarge,us-east-1,31.46,192,2048.0,8,H100,80.0,True,
g6.xlarge,us-east-1,0.8048,4,16.0,1,L4,24.0,False,
m5.large,us-east-1,0.096,2,8.0,0,,,False,
x9.odd,us-east-1,1.0,2,8.0,1,Z9000,7.0,False,
free.tier,us-east-1,0.0,2,8.0,1,L4,24.0,False,
"""
GPUHUNT_V2 = """instance_name,location,price,cpu,memory,gpu_count,gpu_name,gpu_memory,spot,disk_size,gpu_vendor,flags,cpu_arch,provider_data
8x,us,27.6,160,1920.0,8,MI300X,192.0,False,500.0,amd,,x86,"{""a"": 1}"
"""


def test_gpuhunt_catalogs_are_imported(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    catalog = tmp_path / "aws.csv"
    catalog.write_text(GPUHUNT_V1, encoding="utf-8")
    output = tmp_path / "root" / "hardware" / "prices" / "aws.csv"
    result = import_prices(catalog, output, on=ON)
    assert (result.format, len(result.prices)) == ("gpuhunt", 3)
    assert dict(result.skipped) == {
        "no GPU": 1,
        "Z9000 7GB is not in the hardware catalog": 1,
        "'0' is not a price in dollars": 1,
    }
    first = result.prices[0]
    assert (first.provider, first.commitment, first.usd_per_gpu_hour) == ("aws", "on-demand", Decimal("12.29"))
    assert first.gpus == ("h100-sxm-80gb", "h100-pcie-80gb")
    monkeypatch.setenv("CAPPLAN_PATH", str(tmp_path / "root"))
    assert len(load_prices()) == 746
    assert set(result.prices) <= set(load_prices())
    assert find_prices("l4", "aws", region="us-east-1", on=ON)[0].usd_per_gpu_hour == Decimal("0.8048")


def test_gpuhunt_archives_are_imported(tmp_path: Path) -> None:
    archive = tmp_path / "catalog.zip"
    with zipfile.ZipFile(archive, "w") as packed:
        packed.writestr("aws.csv", GPUHUNT_V1)
        packed.writestr("crusoe.csv", GPUHUNT_V2)
        packed.writestr("version", "20261129")
    result = import_prices(archive, on=ON)
    assert {price.provider for price in result.prices} == {"aws", "crusoe"}
    assert result.prices[-1].gpus == ("mi300x",)
    assert result.prices[-1].usd_per_gpu_hour == Decimal("3.45")


@pytest.mark.parametrize(
    ("provider", "region", "where", "hint"),
    [
        ("lambada", None, "--provider", "lambda"),
        ("xx", None, "--provider", "prices list"),
        (None, "us-eats4", "--region", "us-east4"),
        ("aws", "us-central1", "--region", "us-east-1"),
        ("lambda", "anywhere", "--region", "leave --region out"),
    ],
)
def test_a_provider_or_region_that_no_price_has_is_not_an_empty_answer(
    provider: str | None, region: str | None, where: str, hint: str
) -> None:
    for asked in (
        lambda: find_prices("h100", provider, region=region, on=ON),
        lambda: HireBook(None, provider, region=region, on=ON),
    ):
        with pytest.raises(NotFoundError) as caught:
            asked()
        assert caught.value.where == where
        assert hint in caught.value.hint
    HireBook(Decimal(3), provider, region=region)  # a price that is given needs no table


def test_a_list_without_prices_says_so() -> None:
    answer = price_list(gpu="h100", on=datetime.date(1999, 1, 1))
    assert answer.result.prices == ()
    assert "1999-01-01" in answer.warnings[0]
    assert not price_list(gpu="h100", provider="lambda", on=ON).warnings


def test_providers_are_known_by_short_and_listed_names() -> None:
    one, other = find_prices("h100", "verda", on=ON), find_prices("h100", "Verda (DataCrunch)", on=ON)
    assert one == other != []


def test_our_own_table_is_imported_and_round_trips(tmp_path: Path) -> None:
    copy = tmp_path / "copy.csv"
    write_prices(load_prices(), copy)
    assert copy.read_bytes() == (TABLE / "gpu_prices.csv").read_bytes().replace(b"\r\n", b"\n")
    assert import_prices(copy).prices == load_prices()


def test_a_table_of_the_users_may_name_any_entry_of_the_catalog(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    row = {
        "provider": "Basement", "gpu": "gaudi-3", "instance": "", "gpus_per_instance": "1", "region": "", "notes": "",
        "pricing_type": "on-demand", "usd_per_instance_hour": "0.50", "usd_per_gpu_hour": "0.50", "date": "2026-11-01",
        "date_quality": "exact", "source": "own",
    }  # fmt: skip
    folder = tmp_path / "prices"
    folder.mkdir()
    with (folder / "mine.csv").open("w", newline="", encoding="utf-8") as mine:
        writer = csv.DictWriter(mine, COLUMNS)
        writer.writeheader()
        writer.writerow(row)
    offer = best_offer("gaudi3", 8, "basement", on=ON, hardware_dirs=[tmp_path])
    assert offer.usd_per_hour == Decimal("4.00")


@pytest.mark.parametrize(
    ("text", "place", "message"),
    [
        ("", ":1:1", "is missing"),
        ("a,b\n1,2\n", ":1:1", "the column 'instance_name' is missing"),
        (GPUHUNT_V1.splitlines()[0] + "\n", "", "it holds no rows"),
        (GPUHUNT_V1.splitlines()[0] + "\nx\n", "", "cut short"),
        (GPUHUNT_V1.splitlines()[0] + "\nx,y,nan,1,1,1,L4,24,False,\n", "", "price is not a number"),
        (GPUHUNT_V1.splitlines()[0] + "\nx,y,1,1,1,one,L4,24,False,\n", "", "gpu_count is not a number"),
        (GPUHUNT_V1.splitlines()[0] + "\nx,y,1,1,1,1,L4,24,maybe,\n", "", "spot is neither"),
        (",".join(COLUMNS) + "\nA,L4,,1,,on-demand,1,1,2026-01,x,y\n", ":2:1", "not as many cells"),
        (",".join(COLUMNS) + "\nA,L4,,1,,on-demand,1,1,soon,x,y,z\n", ":2:1", "is not a date"),
        (",".join(COLUMNS) + "\nA,L4,,1,,on-demand,-1,1,2026,x,y,z\n", ":2:1", "is not a price"),
        (",".join(COLUMNS) + "\nA,L4,,0,,on-demand,1,1,2026,x,y,z\n", ":2:1", "is not a number of GPUs"),
        (",".join(COLUMNS) + "\nA,L4,,1,,barter,1,1,2026,x,y,z\n", ":2:1", "the pricing type 'barter'"),
    ],
)
def test_bad_files_are_told_with_their_place(tmp_path: Path, text: str, place: str, message: str) -> None:
    bad = tmp_path / "bad.csv"
    bad.write_text(text, encoding="utf-8")
    with pytest.raises(InvalidFileError) as caught:
        import_prices(bad)
    assert message in caught.value.message
    assert caught.value.where.endswith(f"bad.csv{place}")


def test_what_is_no_archive_or_table(tmp_path: Path) -> None:
    (tmp_path / "bad.zip").write_bytes(b"PK\x03\x04 not really")
    (tmp_path / "bad.csv").write_bytes(b"\xff\xfe\x00")
    (tmp_path / "nul.csv").write_text(GPUHUNT_V1.replace("us-east-1", "us\x00east", 1), encoding="utf-8")
    for name in ("bad.zip", "bad.csv"):
        with pytest.raises(InvalidFileError):
            import_prices(tmp_path / name)
    for name in ("missing.zip", "missing.csv"):
        with pytest.raises(NotFoundError):
            import_prices(tmp_path / name)
    assert len(import_prices(tmp_path / "nul.csv").prices) == 3


def test_an_archive_that_grows_is_refused(tmp_path: Path) -> None:
    archive = tmp_path / "bomb.zip"
    with zipfile.ZipFile(archive, "w", zipfile.ZIP_DEFLATED) as packed:
        packed.writestr("aws.csv", b"a" * ((64 << 20) + 1))
    with pytest.raises(InvalidFileError, match="larger than"):
        import_prices(archive)


@pytest.mark.skipif(os.geteuid() == 0 and not Path("/proc").is_dir(), reason="needs a place that cannot be written")
def test_an_output_that_cannot_be_written(tmp_path: Path) -> None:
    catalog = tmp_path / "aws.csv"
    catalog.write_text(GPUHUNT_V1, encoding="utf-8")
    (tmp_path / "file").write_text("")
    for output in (tmp_path / "file" / "x.csv", tmp_path / "table.txt"):
        with pytest.raises(UsageError) as caught:
            import_prices(catalog, output)
        assert caught.value.where == "--output"
