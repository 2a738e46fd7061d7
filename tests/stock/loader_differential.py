"""FlashInfer's own loader and ours, side by side, over as many damaged files as asked for.

python -m tests.stock.loader_differential --files 10000 --seed 1
"""

import argparse
import contextlib
import json
import logging
import sys
import tempfile
import threading
import time
from collections import Counter
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import flashinfer
from flashinfer.autotuner import AutoTuner

from tests.sgl_tune.cache.corpus import target_of
from tests.sgl_tune.cache.predictions import (
    PROBE,
    PROBE_VALUE,
    is_shallow,
    our_load,
    our_save,
    reader_of,
    recorded,
    texts,
)
from tests.stock.mutations import mutated_files

INSTALLED = flashinfer.__version__
TARGET = target_of(INSTALLED)
stock: Any = sys.modules[AutoTuner.__module__]  # a module of its own since 0.6.15


class StockTuner(AutoTuner):
    """The real loader and saver on their own state; the process's tuner is never touched."""

    def __init__(self) -> None:
        self._lock = threading.RLock()
        self._file_configs: dict[str, tuple[str, Any]] = {}
        self._file_config_policies: dict[str, tuple[Any, ...]] = {}
        self._namespaced_records: dict[str, dict[str, Any]] = {}
        self._dirty_namespaces: set[str] = set()
        self._observed_cache_generations: dict[str, str | None] = {}
        self._warned_cache_mismatch = {"hard", "soft"}
        self._dirty, self._dirty_seq = False, 0
        self.profiling_cache: dict[Any, Any] = {}
        self._profiling_cache_policies: dict[tuple, tuple | None] = {}
        # Since 0.7.4
        self._file_config_selections: dict[str, dict[str, Any]] = {}
        self._profiling_cache_selections: dict[tuple, dict[str, Any]] = {}
        self._invalidated_file_keys: set[str] = set()


@contextlib.contextmanager
def pinned_environment(target: Mapping[str, str]) -> Iterator[None]:
    """FlashInfer reads the machine's environment through one function: let it read the target's."""
    collect, level = stock._collect_metadata, stock.logger.level
    stock._collect_metadata = lambda: dict(target)
    stock.logger.setLevel(logging.ERROR)
    try:
        yield
    finally:
        stock._collect_metadata = collect
        stock.logger.setLevel(level)


def stock_load(path: Path, target: Mapping[str, str]) -> dict[str, Any]:
    tuner = StockTuner()
    try:
        loaded = tuner.load_configs(str(path))
    except Exception as error:
        return {"verdict": type(error).__name__}
    if loaded:
        return {
            "verdict": "loaded",
            "entries": texts(tuner._file_configs),
            "policies": texts(tuner._file_config_policies),
        }
    saved = json.loads(path.read_text())["_metadata"]
    hard, soft = _mismatches(saved, dict(target))
    return {"verdict": "ignored", "hard": texts(hard), "soft": texts(soft)}


def _mismatches(saved: Any, target: dict[str, str]) -> tuple[dict[str, Any], dict[str, Any]]:
    if hasattr(stock, "_classify_metadata_mismatches"):
        return stock._classify_metadata_mismatches(saved, target)
    found = {name: (saved.get(name), now) for name, now in target.items()}
    return {name: pair for name, pair in found.items() if pair[0] not in (pair[1], "*")}, {}


def stock_save(path: Path) -> str | bytes:
    """The file after a save of one new entry, or the exception's name. Leaves the directory as it was."""
    tuner = StockTuner()
    tuner._file_configs[PROBE] = (PROBE_VALUE[0], tuple(PROBE_VALUE[1]))
    if reader_of(TARGET).keeps_policies:
        tuner._file_config_policies[PROBE] = tuple(PROBE_VALUE[2])
    try:
        tuner.save_configs(str(path))
    except Exception as error:
        return type(error).__name__
    return path.read_bytes()


@dataclass(frozen=True)
class Disagreement:
    name: str
    raw: bytes
    stock: Any
    ours: Any


def disagreements(name: str, raw: bytes, folder: Path, target: Mapping[str, str]) -> Iterator[Disagreement]:
    """Call it inside `pinned_environment(target)`."""
    path = folder / "rank_tp0_pp0_dp0.json"
    path.write_bytes(raw)
    expected, found = stock_load(path, target), our_load(raw, target)
    if expected != found:
        yield Disagreement(f"{name}: load", raw, expected, found)
    saved, predicted = stock_save(path), our_save(raw, target)
    parses_deeper_than_it_writes = sys.version_info >= (3, 13) and saved == "RecursionError"
    if saved != predicted and not parses_deeper_than_it_writes:
        yield Disagreement(f"{name}: save", raw, saved, predicted)


@dataclass
class Tally:
    files: int
    verdicts: Counter[str]
    found: list[Disagreement]


def compare(files: int, seed: int, target: Mapping[str, str] = TARGET) -> Tally:
    tally = Tally(0, Counter(), [])
    memory = "/dev/shm" if Path("/dev/shm").is_dir() else None
    with tempfile.TemporaryDirectory(dir=memory) as folder, pinned_environment(target):
        for name, raw in mutated_files(files, seed, target):
            tally.files += 1
            tally.verdicts[our_load(raw, target)["verdict"]] += 1
            tally.found.extend(disagreements(name, raw, Path(folder), target))
    return tally


def record(files: int, seed: int) -> list[str]:
    """What this FlashInfer does with files that every interpreter parses alike."""
    with tempfile.TemporaryDirectory() as folder, pinned_environment(TARGET):
        path = Path(folder) / "rank_tp0_pp0_dp0.json"
        lines = []
        for _, raw in mutated_files(files, seed, TARGET):
            if is_shallow(raw):
                path.write_bytes(raw)
                lines.append(recorded(raw, stock_load(path, TARGET), stock_save(path)))
        return lines


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--files", type=int, default=10_000)
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--record", action="store_true", help="only print what FlashInfer did, as JSON")
    arguments = parser.parse_args()
    if arguments.record:
        print(json.dumps(record(arguments.files, arguments.seed)))
        return
    started = time.perf_counter()
    tally = compare(arguments.files, arguments.seed)
    seconds = time.perf_counter() - started
    print(
        f"FlashInfer {INSTALLED}: {tally.files} files, seed {arguments.seed}, {seconds:.1f} s:"
        f" {len(tally.found)} disagreements"
    )
    for verdict, count in tally.verdicts.most_common():
        print(f"  {verdict:20} {count}")
    for found in tally.found[:5]:
        print(f"{found.name}\n  stock {str(found.stock)[:400]}\n  ours  {str(found.ours)[:400]}")
    raise SystemExit(1 if tally.found else 0)


if __name__ == "__main__":
    main()
