"""What people type, against values written out by hand or taken from the standards."""

from __future__ import annotations

import math

import pytest
from hypothesis import given
from hypothesis import strategies as st

from capplan.describe import quantities as q
from capplan.errors import UsageError


@pytest.mark.parametrize(
    ("text", "tokens"),
    [
        ("1", 1),
        ("4096", 4096),
        ("8k", 8192),
        ("8K", 8192),
        ("32k", 32768),
        ("64k", 65536),
        ("128K", 131072),
        ("0.5k", 512),
        ("1.5k", 1536),
        ("1m", 1048576),
        ("1M", 1048576),
        ("2Ki", 2048),
        ("2Mi", 2097152),
        ("1g", 1073741824),
        ("1Gi", 1073741824),
        ("1e3", 1000),
        (" 16 k ", 16384),
    ],
)
def test_tokens(text: str, tokens: int) -> None:
    assert q.parse_tokens(text, "--seq") == tokens


def test_token_lengths_give_the_printed_kv_sizes() -> None:
    # 2 x 32 layers x 8 KV heads x 128 x 2 bytes = 131072 B a token: 8k is exactly 1 GiB and 64k exactly 8 GiB.
    per_token = 131072
    assert [n * per_token for n in q.parse_list("8k,64k", q.parse_tokens, "--seq")] == [1 << 30, 8 << 30]


@pytest.mark.parametrize(
    ("text", "count"),
    [
        ("35e9", 35_000_000_000),
        ("7B", 7_000_000_000),
        ("7b", 7_000_000_000),
        ("7G", 7_000_000_000),
        ("0.5k", 500),
        ("125M", 125_000_000),
        ("1.5T", 1_500_000_000_000),
        ("6738415616", 6738415616),
    ],
)
def test_parameters(text: str, count: int) -> None:
    assert q.parse_parameters(text) == count


# Written out digit by digit, so that a wrong power in the table cannot repeat itself here.
BYTES = {
    "1B": 1,
    "1kB": 1_000,
    "1KB": 1_000,
    "1MB": 1_000_000,
    "1GB": 1_000_000_000,
    "1TB": 1_000_000_000_000,
    "1PB": 1_000_000_000_000_000,
    "1KiB": 1_024,
    "1kib": 1_024,
    "1MiB": 1_048_576,
    "1GiB": 1_073_741_824,
    "1TiB": 1_099_511_627_776,
    "1PiB": 1_125_899_906_842_624,
    "1EiB": 1_152_921_504_606_846_976,
    "1EB": 1_000_000_000_000_000_000,
    "24GiB": 25_769_803_776,
    "1.5GiB": 1_610_612_736,
    "0.1GiB": 107_374_182,
    "80gb": 80_000_000_000,
    "17": 17,
    "0": 0,
}


@pytest.mark.parametrize("text", BYTES)
def test_bytes(text: str) -> None:
    assert q.parse_bytes(text) == BYTES[text]


def test_every_byte_prefix_is_tested() -> None:
    tested = {text.lstrip("0123456789.").lower() for text in BYTES}
    assert set(q.BYTE_MULTIPLES) <= tested


def test_a_bare_size_is_in_the_flags_unit() -> None:
    assert q.parse_bytes("24", unit="GiB") == 24 << 30


RATES = {
    "5B/s": 5.0,
    "5kB/s": 5e3,
    "5MB/s": 5e6,
    "1008GB/s": 1.008e12,
    "3.35TB/s": 3.35e12,
    "0.01PB/s": 1e13,
    "0.0001EB/s": 1e14,
    "1KiB/s": 1024.0,
    "1MiB/s": 1048576.0,
    "2GiB/s": 2147483648.0,
    "1TiB/s": 1099511627776.0,
    "1PiB/s": 1125899906842624.0,
    "0.5EiB/s": 576460752303423488.0,
    "8bit/s": 1.0,
    "8kbit/s": 1e3,
    "8Mbit/s": 1e6,
    "400Gbit/s": 5e10,
    "1.6Tbit/s": 2e11,
    "8Pbit/s": 1e15,
    "0.8Ebit/s": 1e17,
    "936": 9.36e11,
    "936 GB/s": 9.36e11,
}


@pytest.mark.parametrize("text", RATES)
def test_bandwidth(text: str) -> None:
    assert q.parse_bandwidth(text) == RATES[text]


def test_every_rate_prefix_is_tested() -> None:
    tested = {text.lstrip("0123456789. ").lower() for text in RATES}
    assert {f"{name}/s" for name in (*q.BYTE_MULTIPLES, *q.BIT_RATE_MULTIPLES)} <= tested


TIMES = {
    "7ns": 7e-9,
    "50us": 50e-6,
    "50µs": 50e-6,
    "200ms": 0.2,
    "2s": 2.0,
    "1.5min": 90.0,
    "2h": 7200.0,
    "30d": 2592000.0,
    "30": 0.03,
}


@pytest.mark.parametrize("text", TIMES)
def test_seconds(text: str) -> None:
    assert q.parse_seconds(text) == TIMES[text]


def test_every_time_unit_is_tested() -> None:
    assert set(q.TIME_MULTIPLES) <= {text.lstrip("0123456789.") for text in TIMES}
    assert q.parse_seconds("30", unit="s") == 30.0
    assert q.parse_seconds("0", positive=False) == 0.0


FLOPS = {
    "165": 1.65e14,
    "9FLOPS": 9.0,
    "9kFLOPS": 9e3,
    "9MFLOPS": 9e6,
    "500GFLOPS": 5e11,
    "165TFLOPS": 1.65e14,
    "165TFLOP/s": 1.65e14,
    "1.98PFLOPS": 1.98e15,
    "0.1EFLOPS": 1e17,
    "660TOPS": 6.6e14,
    "660Top/s": 6.6e14,
}


@pytest.mark.parametrize("text", FLOPS)
def test_flops(text: str) -> None:
    assert q.parse_flops(text) == FLOPS[text]


def test_every_flops_prefix_is_tested() -> None:
    tested = {text.lstrip("0123456789.").lower() for text in FLOPS}
    assert {f"{prefix}flops" for prefix in ("", "k", "m", "g", "t", "p", "e")} <= tested


PARSERS = (
    q.parse_tokens,
    q.parse_parameters,
    q.parse_integer,
    q.parse_bytes,
    q.parse_bandwidth,
    q.parse_seconds,
)
BAD = [
    "",
    " ",
    "nan",
    "NaN",
    "inf",
    "-inf",
    "Infinity",
    "-1",
    "-5GiB",
    "+",
    "1e",
    "1e9999",
    "1e999",
    "9" * 65,
]
BAD += ["1..2", "1,5", "0x10", "1_000", "ten", "5 parsecs", "٣", "1\x00", "1\n2", "k", "1e400GB", "--1"]


@pytest.mark.parametrize("parse", [*PARSERS, q.parse_flops])
@pytest.mark.parametrize("text", BAD)
def test_bad_text_is_a_usage_error(parse: object, text: str) -> None:
    with pytest.raises(UsageError) as caught:
        parse(text, "--flag")  # type: ignore[operator]
    assert caught.value.where == "--flag"
    assert len(caught.value.message) < 300


@pytest.mark.parametrize(
    ("parse", "text"),
    [
        (q.parse_tokens, "0"),
        (q.parse_tokens, "1.3"),
        (q.parse_tokens, "0.0001k"),
        (q.parse_tokens, "99999g"),
        (q.parse_parameters, "1e18T"),
        (q.parse_bytes, "2EiB"),
        (q.parse_bandwidth, "0GB/s"),
        (q.parse_bandwidth, "1e30GB/s"),
        (q.parse_seconds, "0"),
        (q.parse_seconds, "1e15s"),
        (q.parse_flops, "0"),
        (q.parse_flops, "1e9EFLOPS"),
        (q.parse_integer, "1.5"),
        (q.parse_integer, "8k"),
    ],
)
def test_absurd_sizes_are_refused(parse: object, text: str) -> None:
    with pytest.raises(UsageError):
        parse(text, "--flag")  # type: ignore[operator]


def test_bits_are_never_guessed() -> None:
    with pytest.raises(UsageError) as caught:
        q.parse_bandwidth("400Gb/s", "--link")
    assert "400Gb/s" in caught.value.message
    assert caught.value.hint == "write GB/s for bytes or Gbit/s for bits"


def test_the_nearest_unit_is_named() -> None:
    with pytest.raises(UsageError) as caught:
        q.parse_bytes("24GiBs")
    assert "gib" in caught.value.hint


def test_lists() -> None:
    assert q.parse_list("8, 32", q.parse_integer) == [8, 32]
    for text in ("", "8,", ",8", "8,,9"):
        with pytest.raises(UsageError):
            q.parse_list(text, q.parse_integer, "--kv-heads")


@given(st.integers(min_value=1, max_value=2**40))
def test_plain_integers_round_trip(number: int) -> None:
    assert q.parse_tokens(str(number)) == number
    assert q.parse_bytes(str(number)) == number


@given(st.text(max_size=80))
def test_any_text_gives_a_value_or_a_usage_error(text: str) -> None:
    for parse in (*PARSERS, q.parse_flops):
        try:
            value = parse(text, "--flag")
        except UsageError:
            continue
        assert math.isfinite(value)
        assert value >= 0
