"""What counts as the seed failure; `make ghost` runs it if SGLang 0.5.12.post1 was added."""

from dataclasses import replace

import pytest

from runtime.record.events import record_of
from runtime.record.record import Record
from tests.ghost import seeds
from tests.record.test_record import ASKED, DIED, ENDED, READY

TEXT = (
    "CUDA out of memory. Tried to allocate {0.tried} GiB. GPU 0 has a total capacity of {0.total} GiB "
    "of which {0.free} GiB is free. Including non-PyTorch memory, this process has 175.37 GiB memory in use. "
    "Of the allocated memory {0.allocated} GiB is allocated by PyTorch, and 318.79 MiB is reserved by PyTorch"
)
NEAR = seeds.OutOfMemory(tried=6.31, total=178.35, free=2.7, allocated=169.4)


def record(found: seeds.OutOfMemory, calls: tuple[str, ...] = seeds.CALLS, phase: str = "autotune") -> Record:
    stack = [f"/a folder/model_runner.py:7 {call}" for call in calls]
    return record_of(ASKED, [{**DIED, "phase": phase, "text": TEXT.format(found), "stack": stack}, ENDED])


def test_torchs_text_is_read() -> None:
    assert seeds.out_of_memory(TEXT.format(seeds.PUBLISHED)) == seeds.PUBLISHED
    assert seeds.out_of_memory("CUDA error: out of memory") is None


@pytest.mark.parametrize(
    ("found", "why"),
    [
        (record(seeds.PUBLISHED), []),
        (record(NEAR), []),
        (record(replace(NEAR, tried=6.1, allocated=167.13)), ["tried 6.1 GiB"]),
        (record(NEAR, seeds.CALLS[:-1]), ["all_gather is not in the stack"]),
        (record(NEAR, phase="decode graphs"), ["died in decode graphs"]),
        (record_of(ASKED, [READY, ENDED]), ["ready in None: "]),
        (record(replace(NEAR, tried=6.3, allocated=169.26)), []),  # it follows what was tried
        (record(replace(NEAR, tried=6.3, allocated=171.12)), ["allocated 171.12 GiB instead of 169.26"]),
        (record(replace(NEAR, tried=6.3, allocated=169.0)), ["allocated 169.0 GiB instead of 169.26"]),
        (record(replace(NEAR, free=4.37)), []),  # it is said and not judged
    ],
)
def test_a_death_is_the_published_one_or_says_what_differs(found: Record, why: list[str]) -> None:
    assert seeds.faults(found) == why


def test_free_memory_that_differs_is_said() -> None:
    said = seeds.not_known(record(replace(NEAR, free=4.37)))
    assert said.startswith("4.37 GiB free, published 2.98: 1.39 GiB less here lie outside torch.")


def test_readme_shows_the_command_of_the_failure_and_what_torch_said() -> None:
    command, shown = seeds.shown_in_readme()
    words = command.replace("\\\n", " ").split()
    assert " ".join(seeds.SEEDS) in " ".join(words) and words[words.index("--server") + 1] == seeds.RELEASE
    assert "CUDA out of memory. Tried to allocate" in shown


def test_a_line_of_readme_that_is_not_printed_is_found() -> None:
    assert seeds.missing_lines("a\n\nb\n", "x\na\nb\n") == []
    assert seeds.missing_lines("b\na\n", "a\nb\n") == ["a"]
    assert seeds.missing_lines("a b ...\nc ...\n", "a b c d\ne\n") == ["c ..."]
