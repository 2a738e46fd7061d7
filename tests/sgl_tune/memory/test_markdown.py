"""A report for an issue: the verdict and the GPU in its first lines, tables that GitHub reads."""

from dataclasses import replace
from io import StringIO

from sgl_tune.cli.format import DocumentFormat
from sgl_tune.markdown import output_of
from sgl_tune.memory.report import Answer
from sgl_tune.memory.views.terminal import show_answer
from tests.sgl_tune.memory.reports import make_report


def _document(answer: Answer) -> str:
    page = StringIO()
    show_answer(output_of(DocumentFormat.markdown, False, stdout=page), answer, verbose=False)
    return page.getvalue()


def test_the_first_lines_name_the_gpu_and_that_it_was_assumed() -> None:
    report = make_report()
    report = replace(report, whose=replace(report.whose, title="M", gpu="H200"))
    assert _document(Answer(report)).splitlines()[2].startswith("M on H200, 80.00 GiB: ")
    assumed = replace(report, whose=replace(report.whose, is_gpu_assumed=True))
    assert _document(Answer(assumed)).splitlines()[2].startswith("M on H200 (assumed), 80.00 GiB: ")


def test_every_row_of_a_table_has_as_many_cells() -> None:
    dead = make_report(failed=True)
    report = replace(make_report().with_notes("n"), what_if={"a|b": dead})
    said = _document(Answer(report, {"f=0.8": dead}))
    assert said.startswith("### FITS") and "\n- n\n" in said
    tables = [part.replace("\\|", "") for part in said.split("\n\n") if part.startswith("|")]
    widths = [{line.count("|") for line in table.splitlines()} for table in tables]
    assert widths == [{7}, {4}, {6}, {6}, {4}]
    assert _document(Answer(dead)).startswith("### OUT OF MEMORY")
