"""The sink: what each format prints, what a terminal gets and a pipe does not."""

import io
import json
import shlex
import subprocess

import pytest
from hypothesis import given
from hypothesis import strategies as st

from sgl_tune.cli.format import Format
from sgl_tune.cli.out import Output, ProgressLine, printable, to_json
from sgl_tune.cli.table import columns_of, laid_out


class _Terminal(io.StringIO):
    def isatty(self) -> bool:
        return True


def _output(format: Format = Format.human, terminal: bool = False) -> tuple[Output, io.StringIO, io.StringIO]:
    stdout, stderr = (_Terminal(), _Terminal()) if terminal else (io.StringIO(), io.StringIO())
    return Output(format, stdout=stdout, stderr=stderr), stdout, stderr


def test_an_agent_reads_tabs_and_no_colour_on_a_terminal_too() -> None:
    out, stdout, _ = _output(Format.agent, terminal=True)

    def human() -> None:
        out.line("two caches", style="bold")
        out.table(columns_of("KEY", ">SIZE"), [("a" * 100, 1), ("b", 20)])

    out.result({}, human)
    assert stdout.getvalue() == f"two caches\nKEY\tSIZE\n{'a' * 100}\t1\nb\t20\n"


@pytest.mark.parametrize(
    ("format", "expected"),
    [
        (Format.human, "two caches\n"),
        (Format.json, '{"schema_version": 1, "n": 2}\n'),
        (Format.quiet, "a\nb\n"),
    ],
)
def test_a_result_goes_to_stdout_in_one_format(format: Format, expected: str) -> None:
    out, stdout, stderr = _output(format)
    out.result({"n": 2}, human=lambda: out.line("two caches"), quiet=["a", "b"])
    assert (stdout.getvalue(), stderr.getvalue()) == (expected, "")


def test_talk_goes_to_stderr_and_quiet_keeps_what_matters() -> None:
    for format, expected in (
        (Format.json, "n\nhint: h\nwarning: w\nerror: e\n  fix: f\n"),
        (Format.quiet, "warning: w\nerror: e\n  fix: f\n"),
    ):
        out, stdout, stderr = _output(format)
        out.note("n")
        out.hint("h")
        out.warn("w")
        out.error("e", "f")
        assert (stdout.getvalue(), stderr.getvalue()) == ("", expected)


def test_colour_is_for_terminals_that_want_it(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("NO_COLOR", raising=False)
    monkeypatch.setenv("TERM", "xterm")
    out, stdout, _ = _output(terminal=True)
    out.line("x", style="bold")
    assert stdout.getvalue() == "\x1b[1mx\x1b[0m\n"
    for name, value in (("NO_COLOR", "1"), ("TERM", "dumb")):
        with monkeypatch.context() as patch:
            patch.setenv(name, value)
            out, stdout, _ = _output(terminal=True)
            out.line("x", style="bold")
            assert stdout.getvalue() == "x\n"
    out, stdout, stderr = _output()
    out.line("x", style="bold")
    out.warn("y")
    assert "\x1b" not in stdout.getvalue() + stderr.getvalue()


def test_a_hostile_name_cannot_drive_the_terminal() -> None:
    out, stdout, _ = _output()
    out.line("a\x1b[2Jb\rc\nd\udcff")
    out.table(columns_of("K"), [["\x9b31m"]])
    assert stdout.getvalue() == "a\\x1b[2Jb\\rc\\nd\\udcff\nK\n\\x9b31m\n"
    assert printable("réglé 日本") == "réglé 日本"


def test_json_stays_json_whatever_a_file_held() -> None:
    deep: list[object] = []
    for _ in range(100_000):
        deep = [deep]
    text = to_json({"tactic": [float("nan"), float("inf"), 1], "deep": deep, "name": "\udcff"})
    assert json.loads(text)["tactic"] == ["nan", "inf", 1]


def test_tables_fit_a_terminal_and_are_whole_in_a_pipe() -> None:
    columns = columns_of("PATH/", ">N", "WHY")
    rows = [("/a/very/long/path" * 10, 7, "because"), ("/b", 12345, "x")]
    out, stdout, _ = _output(terminal=True)
    out.table(columns, rows)
    assert max(map(len, stdout.getvalue().replace("\x1b[1m", "").replace("\x1b[0m", "").splitlines())) == 80
    out, stdout, _ = _output()
    out.table(columns, rows)
    assert "/a/very/long/path" * 10 in stdout.getvalue()


def test_long_lines_fold_between_words_with_an_indent() -> None:
    out, stdout, stderr = _output(terminal=True)
    out.line("word " * 40, indent=2)
    out.warn("word " * 40)
    lines = stdout.getvalue().splitlines()
    assert all(len(line) <= 80 for line in lines) and len(lines) == 3
    assert lines[0].startswith("  word") and lines[1].startswith("    word")
    assert stderr.getvalue().splitlines()[1].startswith(" " * len("warning: ") + "word")


def test_a_folded_command_is_one_command_where_it_is_pasted() -> None:
    asked = ["sgl-tune", "warm", "--", "python", "-m", "sglang.launch_server", "--model-path", "x" * 40]
    argv = [*asked, "--json-model-override-args", '{"a": 1, "b": 2}', "--enable-dp-attention"]
    out, stdout, stderr = _output(terminal=True)
    out.line(shlex.join(argv), indent=5)
    out.error("it is not warmed", shlex.join(argv))
    fix = stderr.getvalue().partition("fix: \x1b[0m")[2]
    for pasted in (stdout.getvalue(), fix):
        words = subprocess.run(["sh", "-c", f"printf '%s|' {pasted}"], capture_output=True, text=True).stdout
        assert words.split("|")[:-1] == argv
    assert len(fix.splitlines()) > 2 and all(len(line) <= 80 for line in fix.splitlines())
    out.hint("sgl-tune prune --stale, once nothing of " + "word " * 20)
    assert "\\" not in stderr.getvalue().partition("hint: ")[2]


def test_progress_is_silent_at_first_and_leaves_no_trace() -> None:
    stream = _Terminal()
    with ProgressLine(stream, "tuning", 3) as progress:
        progress.advance()
    assert stream.getvalue() == ""
    with ProgressLine(stream, "tuning", 3, patience=0.0) as progress:
        progress.advance(detail="gemm1")
        assert stream.getvalue() == "\rtuning 1/3 0s gemm1"
    assert stream.getvalue().endswith("\r" + " " * len("tuning 1/3 0s gemm1") + "\r")


@given(
    st.lists(st.lists(st.integers(1, 30), min_size=5, max_size=5), min_size=1, max_size=4),
    st.integers(36, 120),
)
def test_a_table_stays_within_the_terminal_and_loses_no_cell(sizes: list[list[int]], width: int) -> None:
    columns = columns_of("KEY", ">SIZE", "WHERE/", "A", "B")
    rows = [[f"{row}{i}".ljust(size, "x") for i, size in enumerate(line)] for row, line in enumerate(sizes)]
    titles = [column.title for column in columns]
    for cells, lines in zip([titles, *rows], laid_out(columns, rows, width), strict=True):
        told = " ".join(lines).split()
        assert max(map(len, lines)) <= width and len(told) == len(cells)
        assert all(shown == cell or "…" in shown for shown, cell in zip(told, cells, strict=True))
