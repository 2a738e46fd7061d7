"""A report for an issue: the GPU in its first line, a table that GitHub reads."""

from __future__ import annotations

from dataclasses import replace

from sgl_tune.memory.report import Answer
from sgl_tune.memory.views.markdown import report_markdown
from tests.sgl_tune.memory.reports import make_report


def test_the_first_line_names_the_gpu_and_that_it_was_assumed() -> None:
    report = make_report()
    report = replace(report, whose=replace(report.whose, title="M", gpu="H200"))
    first, *_ = report_markdown(Answer(report))
    assert first.startswith("### M on H200, 80.00 GiB: ")
    first, *_ = report_markdown(Answer(replace(report, whose=replace(report.whose, is_gpu_assumed=True))))
    assert first.startswith("### M on H200 (assumed), 80.00 GiB: ")


def test_every_row_of_a_table_has_as_many_cells() -> None:
    dead = make_report(failed=True)
    report = replace(make_report().with_notes("n"), what_if={"a|b": dead})
    lines = list(report_markdown(Answer(report, {"f=0.8": dead})))
    tables = "\n".join(lines).split("\n\n")
    widths = [{line.count("|") for line in of.splitlines()} for of in tables if of.startswith("|")]
    assert widths == [{7}, {4}, {6}, {6}]
    assert "- n" in lines
    assert any("OUT OF MEMORY" in line for line in report_markdown(Answer(dead)))
