"""Public threads of servers that ran out of memory: the report names the cause that the thread found."""

import re
from pathlib import Path

import pytest

from sgl_tune.server_log.cause import cause_of, missing_of
from sgl_tune.server_log.log import read_server_log
from tests.sgl_tune.running import ROOT, run_here

# The thread stands in each file's first line. What it found, and numbers that must show it.
FOLDER = ROOT / "tests" / "sgl_tune" / "data" / "public_logs"
FOUND = {
    "prefill-graphs": ("the KV pool leaves too little for the prefill graphs", "12.14 GiB", "0.83", "=640"),
    "fraction-below-weights": ("nothing of the fraction", "125.65 GiB of 137.90 GiB", "beyond 0.9112"),
    "fraction-below-weights-and-draft": ("nothing of the fraction", "3.07 GiB", "beyond 0.9334"),
    "draft-given-back": ("the pool was sized before the draft's own embedding and head went", "1.83 GiB"),
    "symmetric-memory": ("symmetric memory pool", "tried 4.00 GiB", "2.21 GiB free"),
    "logits-in-autotune": ("a matrix of logits", "tried 6.38 GiB", "2.98 GiB free", "autotune"),
    "indexer-scores": ("the sparse indexer's scores", "1.42 GiB did not fit", "serving"),
    "fragmented": ("fragmented memory", "4.91 GiB", "3.95 GiB"),
    "logprobs": ("a matrix of logits", "tried 6.05 GiB", "5.94 GiB free"),
    "repacked-weights": ("weights laid out anew after loading",),
    "deepep-heap": ("DeepEP's buffers", "decode graphs"),
    "another-process": ("another process holds part of the GPU", "1.13 GiB"),
    "unbalanced": ("another process holds part of the GPU", "less on one GPU"),
}
AT = "[2026-11-20 10:00:00"
# One that shows too little.
LITTLE = f"{AT} TP0] max_total_num_tokens=1741, context_len=65536, available_gpu_mem=46.90 GB\n"


def test_every_log_names_its_thread_and_what_it_found() -> None:
    files = {path.stem: path.read_text() for path in FOLDER.glob("*.log")}
    assert files.keys() == FOUND.keys()
    assert all(re.match(r"# Numbers and functions of [\w./-]+#\d+", text) for text in files.values())


@pytest.mark.parametrize("name", FOUND)
def test_the_command_names_the_cause_that_the_thread_found(name: str) -> None:
    ran = run_here("mem-report", "--log", FOLDER / f"{name}.log")
    assert (ran.code, ran.err) == (1, "") and [words for words in FOUND[name] if words not in ran.out] == []


def test_a_log_that_tells_too_little_is_answered_with_what_it_lacks(tmp_path: Path) -> None:
    """sgl-project/sglang#36583: the free memory at ready means nothing without the free memory before."""
    (tmp_path / "server.log").write_text(LITTLE)
    lacks = " ".join(missing_of(log := read_server_log(tmp_path / "server.log")))
    assert cause_of(log) is None and "Load weight begin" in lacks and "server_args=" in lacks
    args = f"{AT}] server_args=ServerArgs(mem_fraction_static=0.8)\n"
    begin = f"{AT} TP0] Load weight begin. avail mem=78.00 GB\n"
    (tmp_path / "server.log").write_text(args + begin + LITTLE)
    assert "46.90 GiB are free at ready" in str(cause_of(read_server_log(tmp_path / "server.log")))
    (tmp_path / "server.log").write_text(args.replace("(", "(max_total_tokens=1741, ") + begin + LITTLE)
    assert cause_of(read_server_log(tmp_path / "server.log")) is None


TRIED = "torch.OutOfMemoryError: CUDA out of memory. Tried to allocate 2.00 GiB.\n"
LOADED = "Load weight begin. avail mem=78.00 GB", "Load weight end. avail mem=20.00 GB, mem usage=58.00 GB."
POOL = "Memory pool end. avail mem=9.00 GB"


@pytest.mark.parametrize(
    ("entries", "end", "what"),
    [
        (LOADED[:1], TRIED, "the weights do not fit"),
        ((*LOADED, LOADED[0]), TRIED, "the draft's weights do not fit"),
        (LOADED, TRIED, "the KV pool itself"),
        ((*LOADED, POOL), TRIED, "the KV pool leaves too little for what comes after it"),
        ((*LOADED, POOL, "Running FlashInfer autotune"), TRIED, "too little for the autotune dummy run"),
        ((*LOADED, POOL, "Capture target verify CUDA graph begin."), TRIED, "too little for the decode"),
        ((*LOADED, POOL, "Capture draft decode CUDA graph begin."), TRIED, "too little for the draft graphs"),
        ((*LOADED, POOL, "max_total_num_tokens=5000, context_len=9"), TRIED, "activations of a batch"),
        ((*LOADED, POOL), "NCCL WARN Cuda failure 2 'out of memory'\n", "NCCL's buffers"),
    ],
)
def test_a_death_has_the_logs_cause(tmp_path: Path, entries: tuple[str, ...], end: str, what: str) -> None:
    (tmp_path / "server.log").write_text("".join(f"{AT} TP0] {entry}\n" for entry in entries) + end)
    cause = cause_of(read_server_log(tmp_path / "server.log"))
    assert cause is not None and what in cause.what
