"""Watch the compilers below a process: when they run, and for which store, by their folder. Afterwards, find
what a start wrote into the stores: a complete store is only read."""

import os
import threading
import time
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from itertools import chain
from pathlib import Path
from typing import NamedTuple

from runtime.sglang.kept_files import ROWS
from sgl_tune.processes.descendants import below
from sgl_tune.stores.rows import STORES, places

LOOK_SECONDS = 0.1
MOST_TURNS = 5_000
NAMES = frozenset((
    "nvcc", "cicc", "ptxas", "fatbinary", "cudafe++", "nvlink", "ninja", "hipcc", "c++", "g++", "gcc", "cc",
    "cc1", "cc1plus", "clang", "clang++", "ld", "collect2", "as",
))  # fmt: skip
# A part of a compiler's folder or command line, and its store. The first that fits counts.
_BY_PLACE = (
    ("deep_gemm", "DeepGEMM"),
    ("torchinductor", "Inductor"),
    ("/inductor", "Inductor"),
    ("tilelang", "TileLang"),
    ("tvm-ffi", "SGLang JIT"),
    ("sglang/jit", "SGLang JIT"),
    ("cached_ops", "FlashInfer JIT"),
    ("flashinfer", "FlashInfer JIT"),
    ("triton", "Triton"),
)
UNKNOWN = "compilers"
MOST_FILES = 500_000


class Turn(NamedTuple):
    """A time during which compilers of one kind ran. `what`: the module, if the folder names it."""

    phase: str
    what: str
    begin: float
    end: float


class Compilers:
    """A thread that looks ten times a second. It may miss a process that lives shorter."""

    def __init__(self, root: int, names: frozenset[str] = NAMES) -> None:
        self._turns: list[Turn] = []
        self._root, self._names = root, names
        self._running: dict[tuple[str, str], tuple[float, float]] = {}
        self._stop = threading.Event()
        self._thread = threading.Thread(target=self._watch, daemon=True)
        self._thread.start()

    @property
    def turns(self) -> list[Turn]:
        """Return all turns, including those that go on."""
        now = [Turn(*whose, *times) for whose, times in self._running.copy().items()]
        return [*self._turns, *now]

    @property
    def at_work(self) -> list[str]:
        """Return what is being compiled now."""
        return sorted({what or phase for phase, what in self._running.copy()})

    def close(self) -> None:
        self._stop.set()
        self._thread.join()

    def _watch(self) -> None:
        while not self._stop.wait(LOOK_SECONDS):
            now = time.time()
            for seen in set(_seen(self._root, self._names)):
                begin, _ = self._running.get(seen, (now - LOOK_SECONDS, now))
                self._running[seen] = (begin, now)
            self._end([seen for seen, (_, last) in self._running.items() if last < now - 3 * LOOK_SECONDS])

    def _end(self, gone: list[tuple[str, str]]) -> None:
        for phase, what in gone:
            begin, last = self._running.pop((phase, what))
            if len(self._turns) < MOST_TURNS:
                self._turns.append(Turn(phase, what, begin, last))


def _seen(root: int, names: frozenset[str]) -> Iterator[tuple[str, str]]:
    for pid in below(root):
        try:
            name = Path(f"/proc/{pid}/comm").read_text().strip()
            if name in names:
                place = Path(f"/proc/{pid}/cwd").readlink()
                line = Path(f"/proc/{pid}/cmdline").read_bytes().decode("utf-8", "replace")
                if line:  # an ending process has no command line
                    yield _whose(f"{place}\0{line}")
        except OSError:
            continue  # the process ended meanwhile


def _whose(text: str) -> tuple[str, str]:
    lower = text.lower()
    phase = next((phase for words, phase in _BY_PLACE if words in lower), UNKNOWN)
    what = ""
    if phase == "FlashInfer JIT" and "cached_ops/" in text:
        what = text.split("cached_ops/", 1)[1].split("\0")[0].split("/")[0].strip()[:200]
    return phase, what


@dataclass(frozen=True, slots=True)
class Written:
    store: str
    folder: str
    files: int
    bytes: int


def written_since(moment: float, environment: Mapping[str, str]) -> tuple[Written, ...]:
    """Return what was written where a server with these variables would look."""
    found = []
    for store in STORES:
        for folder in folders_of(store.id, environment):
            sizes = [status.st_size for _, _, status in fresh_files(folder, moment)]
            if sizes:
                found.append(Written(store.id, folder, len(sizes), sum(sizes)))
    return tuple(found)


def folders_of(store: str, environment: Mapping[str, str]) -> Iterator[str]:
    home, user = environment.get("HOME", "/root"), environment.get("USER", "root")
    everywhere = (places(row, environment, home, user)[store] for row in ROWS)
    folders = dict.fromkeys(chain.from_iterable(everywhere))
    for folder in folders:
        if not any(folder.startswith(f"{other}/") for other in folders):
            yield folder


def fresh_files(folder: str, moment: float) -> Iterator[tuple[str, str, os.stat_result]]:
    """Yield folder, name and status of each file that was written since `moment`, except by sgl-tune."""
    seen = 0
    for place, folders, names in os.walk(folder):
        folders[:] = [name for name in folders if not name.startswith(".sgl-tune-")]
        for name in names:
            seen += 1
            if seen > MOST_FILES:
                return
            try:
                status = os.lstat(os.path.join(place, name))  # noqa: PTH118
            except OSError:
                continue
            if status.st_mtime >= moment:
                yield place, name, status
