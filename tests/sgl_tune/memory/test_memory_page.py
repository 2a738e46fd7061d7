"""docs/memory.md shows what the program prints: every line of a console block, in its order."""

from __future__ import annotations

import re
import shlex

import pytest

from tests.sgl_tune.running import ROOT, run_here

BLOCK = re.compile(r"```console\n\$ sgl-tune ((?:[^\n]*\\\n)*[^\n]*)\n(.*?)```\n", re.DOTALL)
BLOCKS = BLOCK.findall((ROOT / "docs" / "memory.md").read_text())


@pytest.mark.parametrize(("command", "shown"), BLOCKS, ids=lambda text: text[-30:].strip())
def test_a_console_block_is_what_is_printed(command: str, shown: str) -> None:
    ran = run_here(*shlex.split(command.replace("\\\n", " ")))
    printed = iter(ran.out.splitlines())
    missing = [line for line in shown.splitlines() if line.strip() and line not in printed]
    assert missing == [], ran.out + ran.err


def test_there_are_blocks_to_hold() -> None:
    assert len(BLOCKS) == 3
