"""A report for an issue: the GPU in its first line, a table that GitHub reads."""

from __future__ import annotations

from dataclasses import replace

from sgl_tune.memory.markdown import report_markdown
from tests.sgl_tune.memory.reports import make_report


def test_the_first_line_names_the_gpu_and_that_it_was_assumed() -> None:
    report = replace(make_report(), title="M", gpu="H200")
    first, *_ = report_markdown(report, {})
    assert first.startswith("### M on H200, 80.00 GiB: ")
    first, *_ = report_markdown(replace(report, is_gpu_assumed=True), {})
    assert first.startswith("### M on H200 (assumed), 80.00 GiB: ")


def test_every_row_of_a_table_has_as_many_cells() -> None:
    dead = make_report(failed=True)
    report = replace(make_report(), what_if={"a|b": dead}, notes=("n",))
    lines = list(report_markdown(report, {"f=0.8": dead}))
    widths = [line.count("|") for line in lines if line.startswith("|")]
    assert set(widths) == {6, 7} and widths == sorted(widths, reverse=True)
    assert "- n" in lines
    assert any("OUT OF MEMORY" in line for line in report_markdown(dead, {}))
