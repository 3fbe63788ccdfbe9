"""Traces: what is read, in which order, and what is refused with its line."""

from __future__ import annotations

from pathlib import Path

import pytest

from capplan.errors import InvalidFileError, NotFoundError
from capplan.serving.requests import Request
from capplan.serving.traces import read_trace


def trace(folder: Path, text: str) -> Path:
    path = folder / "trace.csv"
    path.write_text(text, encoding="utf-8")
    return path


def test_columns_in_any_order_and_requests_in_that_of_arrival(tmp_path: Path) -> None:
    text = "osl,isl,note,arrival,prefix_id,prefix_tokens\n10,100,x,2.5,a,64\n20,200,,0.5,,\n30,300,,1,b,0\n"
    assert read_trace(trace(tmp_path, text)) == [
        Request(0.5, 200, 20),
        Request(1.0, 300, 30),
        Request(2.5, 100, 10, "a", 64),
    ]


@pytest.mark.parametrize(
    ("text", "said", "where"),
    [
        ("", "arrival", ":1"),
        ("arrival,isl\n0,1\n", "'osl' is missing", ":1"),
        ("arrival,isl,osl\n", "no requests", ""),
        ("arrival,isl,osl\n0,1,1\nx,1,1\n", "arrival 'x'", ":3"),
        ("arrival,isl,osl\n-1,1,1\n", "arrival '-1'", ":2"),
        ("arrival,isl,osl\nnan,1,1\n", "arrival 'nan'", ":2"),
        ("arrival,isl,osl\n0,0,1\n", "isl 0", ":2"),
        ("arrival,isl,osl\n0,1.5,1\n", "isl 1.5", ":2"),
        ("arrival,isl,osl\n0,1\n", "osl ''", ":2"),
        ("arrival,isl,osl,prefix_id\n0,1,1,a\n", "prefix_tokens", ":1"),
        ("arrival,isl,osl,prefix_id,prefix_tokens\n0,10,1,a,11\n", "longer than its prompt", ":2"),
    ],
)
def test_what_is_refused(tmp_path: Path, text: str, said: str, where: str) -> None:
    with pytest.raises(InvalidFileError, match=said) as caught:
        read_trace(trace(tmp_path, text))
    assert caught.value.where.endswith(f"trace.csv{where}")


def test_a_file_that_is_no_text_or_not_there(tmp_path: Path) -> None:
    with pytest.raises(NotFoundError):
        read_trace(tmp_path / "missing.csv")
    with pytest.raises(NotFoundError):
        read_trace(tmp_path)
    path = tmp_path / "binary.csv"
    path.write_bytes(b"arrival,isl,osl\n\xff\xfe\x00\n")
    with pytest.raises(InvalidFileError):
        read_trace(path)
