"""The linear-time matcher against Python's own `re`, on what both understand, and on hostile patterns."""

import re
import time
from contextlib import suppress

import pytest
from hypothesis import given
from hypothesis import strategies as st

from capplan.describe.linear_regex import LinearRegex
from capplan.errors import UnsupportedError

NAMES = [
    "model.layers.0.self_attn.q_proj",
    "model.layers.17.mlp.gate_proj",
    "model.layers.17.mlp.gate",
    "model.layers.3.mlp.shared_experts.up_proj",
    "model.layers.3.mlp.experts.12.down_proj",
    "lm_head",
    "model.visual.blocks.3.attn.qkv",
]
PATTERNS = [
    ".*self_attn.*",
    r".*mlp\.(gate|up|gate_up|down)_proj.*",
    r"model\.layers\.(?:[0-9]|1[0-5])\..*",
    r".*\.experts\.\d+\..*",
    r".*mlp.gate$",
    r"^(?!.*experts).*proj$",
    r"(?=.*layers).*gate",
    r".*\.(?P<part>q|k|v)_proj",
    r"lm_head|visual",
    r"[^m]+",
    r"model.layers.[0-9]{2,3}.mlp",
    r".*?\w+_proj\Z",
    "",
]


@pytest.mark.parametrize("pattern", PATTERNS)
def test_agrees_with_re(pattern: str) -> None:
    ours = LinearRegex(pattern)
    assert [ours.match(name) for name in NAMES] == [bool(re.match(pattern, name)) for name in NAMES]


ATOM = st.sampled_from(["a", "b", ".", "[ab]", "[^a]", r"\w", "a$", "(?:ab|b)", "(a|b?)", "(a*)"])
EXPRESSION = st.lists(st.tuples(ATOM, st.sampled_from(["", "*", "+", "?", "{1,2}", "*?"])), max_size=5).map(
    lambda items: "".join(atom if atom == "a$" else atom + repeat for atom, repeat in items)
)


@given(EXPRESSION, EXPRESSION, st.text("abc", max_size=6))
def test_agrees_with_re_on_random_expressions(left: str, right: str, name: str) -> None:
    for pattern in (left, f"{left}|{right}", f"(?!{left}){right}", f"{left}(?={right}).*"):
        assert LinearRegex(pattern).match(name) == bool(re.match(pattern, name)), pattern


@pytest.mark.parametrize("pattern", ["(a+)+$", "(a|a)*b", "(.*a){20}", "(x+x+)+y", "((a*)*)*b", ".*.*.*.*.*.*X"])
def test_hostile_patterns_take_no_time(pattern: str) -> None:
    start = time.perf_counter()
    with suppress(UnsupportedError):
        LinearRegex(pattern).match("a" * 60 + "x" * 60)
    assert time.perf_counter() - start < 0.5


@pytest.mark.parametrize(
    "pattern",
    [
        *(r"(a)\1", r"(?<=a)b", r"\bword", "(", ")", "[a", "*a", "a{2", "a{3,1}", "a^b", "(?i)a", "a**+", "\\"),
        *(r"(?:a(?=b))c", "a{0,9999}", "a" * 501, "(" * 50),
    ],
)
def test_what_is_not_understood_is_refused(pattern: str) -> None:
    with pytest.raises(UnsupportedError):
        LinearRegex(pattern, where="config.json")


@given(st.text(max_size=40), st.text(max_size=20))
def test_any_text_is_matched_or_refused(pattern: str, name: str) -> None:
    with suppress(UnsupportedError):
        LinearRegex(pattern).match(name)
