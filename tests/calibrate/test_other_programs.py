"""What is said of samples that other programs disturbed."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

from calibrate.other_programs import disturbed_samples
from calibrate.samples import Recording, Sample


def phase(name: str, marked: tuple[int, ...]) -> Sample:
    return Sample("phase", name, {"phase": "decode"}, {"batch": 1}, "cold", 1.0, 1.0, 1.0, (1.0,) * 5, marked=marked)


def test_samples_that_others_disturbed_are_told_where_the_clock_sees_them() -> None:
    kernel: Any = replace(phase("gemm", ()), kind="kernel")
    samples = (phase("one", (0, 3, 4)), phase("two", (2,)), kernel)
    wall = Recording({"clock": "wall"}, samples)
    assert disturbed_samples(wall)[0].startswith("other programs disturbed most repeats of 1 of 2 phases")
    assert disturbed_samples(replace(wall, provenance={"clock": "cpu"})) == ()
    assert disturbed_samples(replace(wall, samples=samples[1:])) == ()
    late = replace(kernel, marked=(0, 1, 2))
    (text,) = disturbed_samples(replace(wall, samples=(late, *samples)))
    assert "1 of 2 kernel samples and 1 of 2 phases" in text
