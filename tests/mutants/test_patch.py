"""A change reaches what is loaded already: each in a process of its own, which ends with it."""

from __future__ import annotations

from collections.abc import Callable
from multiprocessing import get_context

import pytest

from runtime.server import checks, rows
from runtime.server.parallel_config import ParallelConfig
from tests.mutants.again import loaded_again
from tests.mutants.patch import importers, replaced
from tests.mutants.places import TREE, function_at, places
from tests.oracle.commands import Command
from tests.oracle.ours import our_answer
from tests.server import test_edges as _  # noqa: F401, who reads all rows

QWEN_NEXT = "Qwen/Qwen3-Next-80B-A3B-Instruct"


def _changed(file: str, old: str, new: str) -> str:
    source = (TREE / file).read_text()
    assert source.count(old) == 1
    return source.replace(old, new)


def _exit_by(check: Callable[[], bool]) -> None:
    raise SystemExit(0 if check() else 3)


def _holds(check: Callable[[], bool]) -> bool:
    """In a process that has loaded what this file imports: here all tests are, and each would load again."""
    process = get_context("spawn").Process(target=_exit_by, args=(check,))
    process.start()
    process.join(60)
    assert process.exitcode in (0, 3)
    return process.exitcode == 0


def _adds() -> bool:
    source = _changed("runtime/server/rows.py", "return requests * width", "return requests + width")
    before = rows.aligned_rows(5, 3, ParallelConfig())
    assert replaced("runtime/server/rows.py", source)
    return (before, rows.aligned_rows(5, 3, ParallelConfig())) == (15, 8)


def test_a_function_takes_its_new_code_where_it_was_imported_from() -> None:
    assert _holds(_adds)


def _forgets() -> bool:
    file = "runtime/server/architectures.py"
    source = _changed(file, '"Qwen3NextForCausalLM", "Qwen3_5For', '"Qwen3_5For')
    asked = ("--model-path", f"models/{QWEN_NEXT}", "--trust-remote-code", "--disable-overlap-schedule")
    command = Command(0, "0.5.23", "B200", QWEN_NEXT, asked)
    backend = our_answer(command)["server"]["attention_backend"]
    assert not replaced(file, source)
    loaded_again(file, source)
    return bool(our_answer(command)["server"]["attention_backend"] != backend)


def test_a_table_is_read_anew_by_who_imported_it() -> None:
    assert _holds(_forgets)


def _moves() -> bool:
    file = "runtime/server/checks/budgets.py"
    source = _changed(
        file, "        _MEGAMOE,\n        since=(0, 5, 21)", "        _MEGAMOE,\n        since=(1,)"
    )
    assert not any(row.since == (1,) for row in checks.ROWS)
    loaded_again(file, source)
    return "tests/server/test_edges.py" in importers(file) and any(row.since == (1,) for row in checks.ROWS)


def test_a_row_is_seen_by_who_reads_all_rows() -> None:
    assert _holds(_moves)


@pytest.mark.parametrize(
    ("text", "function"),
    [
        ("a + 1", ("f", 2)),
        ("a + 2", None),
        ("a + 3", ("<lambda>", 5)),
        ("a + 4", ("g", 7)),
        ("a + 5", ("f", 2)),
    ],
)
def test_a_change_stands_in_the_innermost_function(text: str, function: tuple[str, int] | None) -> None:
    source = (
        "a = 'größer'\n"
        "@decorated\n"
        "def f(b=a + 2):\n"
        "    c = a + 1\n"
        "    d = [lambda: a + 3]\n"
        "    e = [a + 5 for _ in d]\n"
        "    def g():\n"
        "        return a + 4\n"
    )
    assert function_at(source, places(source), source.index(text)) == function
