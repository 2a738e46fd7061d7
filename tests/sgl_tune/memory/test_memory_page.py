"""docs/memory.md shows what the program prints: every line of a console block, in its order.

`SGL_TUNE_REWRITE=1 pytest tests/sgl_tune/memory/test_memory_page.py` writes the present numbers into it.
"""

import os
import re
import shlex
from collections.abc import Iterator

import pytest

from tests.sgl_tune.running import ROOT, run_here

PAGE = ROOT / "docs" / "memory.md"
BLOCK = re.compile(r"```console\n\$ sgl-tune ((?:[^\n]*\\\n)*[^\n]*)\n(.*?)```\n", re.DOTALL)
BLOCKS = BLOCK.findall(PAGE.read_text())
NUMBERS = re.compile(r"[\d.,%+-]+|[█▒]+|[KMG]iB|\s+")


@pytest.mark.parametrize(("command", "shown"), BLOCKS, ids=range(len(BLOCKS)))
def test_a_console_block_is_what_is_printed(command: str, shown: str) -> None:
    ran = run_here(*shlex.split(command.replace("\\\n", " ")))
    if os.environ.get("SGL_TUNE_REWRITE"):
        new = "".join(f"{line}\n" for line in _renewed(shown.splitlines(), iter(ran.out.splitlines())))
        PAGE.write_text(PAGE.read_text().replace(shown, new))
        return
    printed = iter(ran.out.splitlines())
    missing = [line for line in shown.splitlines() if line.strip() and line not in printed]
    assert missing == [], ran.out + ran.err


def _renewed(shown: list[str], printed: Iterator[str]) -> Iterator[str]:
    """For each line the next that says the same with other numbers."""
    for line in shown:
        words = NUMBERS.sub("", line)
        yield line if not words else next((of for of in printed if NUMBERS.sub("", of) == words), line)


def test_there_are_blocks_to_hold() -> None:
    assert len(BLOCKS) == 3
