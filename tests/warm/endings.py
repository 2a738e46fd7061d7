"""Warm, ended by a signal at random moments of its whole life: what is left of it?

ENDINGS=20 SEED=7 PYTHONPATH=. python -m tests.warm.endings
"""

import json
import os
import random
import signal
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

from tests.sgl_tune.running import PROGRAM, ROOT, environment
from tests.warm.processes import runs
from tests.warm.test_warm import MODEL, SMALL

SIGNALS = (signal.SIGINT, signal.SIGTERM, signal.SIGHUP, signal.SIGKILL)
FLAGS = ("--gpu", "cpu", *SMALL, "--tp", "2", "--format", "quiet")
LONGEST_SECONDS = 300
GRACE_SECONDS = 15  # on a machine that others use, too


@dataclass(frozen=True)
class Ending:
    number: int
    moment: float
    code: int
    err: str
    gone_after: float
    left: tuple[str, ...]
    files: tuple[bytes, ...]
    printed: tuple[str, ...]

    @property
    def faults(self) -> list[str]:
        found = [f"{name} stayed" for name in self.left]
        if self.gone_after > GRACE_SECONDS:
            found.append(f"a process of ours was there for {self.gone_after:.1f} s")
        if self.code not in self._right_codes():
            found.append(f"exit code {self.code}: {self.err[-300:]}")
        if "bug in sgl-tune" in self.err or ("Traceback" in self.err and self.code != -signal.SIGINT):
            found.append(f"it said {self.err[-300:]}")
        if len(set(self.files)) > 1 or len(self.files) not in (0, 2) or not all(map(_is_whole, self.files)):
            found.append(f"{len(self.files)} files, {len(set(self.files))} contents")
        return found

    def _right_codes(self) -> set[int]:
        """0 only where all was done; -2 is how Python itself ends before a line of ours ran."""
        codes = {130, -signal.SIGINT} if self.number == signal.SIGINT else {-self.number}
        return codes | ({0} if len(self.printed) == 2 == len(self.files) else set())


def endings(count: int, seed: int, folder: Path) -> Iterator[Ending]:
    """`count` of each signal."""
    signal.signal(signal.SIGINT, signal.default_int_handler)  # ignored, and so inherited, behind a shell's &
    chosen = random.Random(seed)
    (folder / "model").mkdir()
    (folder / "model" / "config.json").write_text(json.dumps(MODEL))
    whole, life = _ended(folder / "whole", folder / "model", 0, LONGEST_SECONDS)
    assert whole.code == 0 and len(whole.files) == 2, whole.err
    for turn in range(count):
        for number in SIGNALS:
            moment = chosen.uniform(0.0, life)
            yield _ended(folder / f"{turn}.{number}", folder / "model", number, moment)[0]


def _ended(place: Path, model: Path, number: int, moment: float) -> tuple[Ending, float]:
    scratch, cache = place / "scratch", place / "cache"
    scratch.mkdir(parents=True)
    command = [*PROGRAM, "warm", "--model-path", str(model), "--cache-dir", str(cache), *FLAGS]
    settings = environment(TMPDIR=str(scratch), ENDING=str(scratch), OMP_NUM_THREADS="1")
    started = time.monotonic()
    with (place / "err").open("wb") as err, (place / "out").open("wb") as out:
        process = subprocess.Popen(command, cwd=ROOT, env=settings, stdout=out, stderr=err)
    try:
        process.wait(moment)
    except subprocess.TimeoutExpired:
        process.send_signal(number)
        process.wait(LONGEST_SECONDS)
    lived = time.monotonic() - started
    ended = time.monotonic()
    while _ours(scratch) and time.monotonic() - ended < 30:
        time.sleep(0.02)
    gone_after = time.monotonic() - ended
    ending = Ending(
        number,
        moment,
        process.returncode,
        (place / "err").read_text(errors="replace"),
        gone_after,
        tuple(path.name for path in scratch.iterdir()),
        tuple(path.read_bytes() for path in sorted(cache.rglob("rank_*.json"))),
        tuple((place / "out").read_text().splitlines()),
    )
    return ending, lived


def _ours(scratch: Path) -> list[int]:
    """Whoever was told of this ending, and whoever they started."""
    mark = f"ENDING={scratch}".encode()
    found = []
    for place in Path("/proc").glob("[0-9]*"):
        try:
            is_ours = mark in (place / "environ").read_bytes().split(b"\0")
        except OSError:
            continue
        if is_ours and runs(int(place.name)):
            found.append(int(place.name))
    return found


def _is_whole(content: bytes) -> bool:
    try:
        return bool(json.loads(content))
    except ValueError:
        return False


def main() -> int:
    count, seed = int(os.environ.get("ENDINGS", "20")), int(os.environ.get("SEED", "0"))
    bad = 0
    with tempfile.TemporaryDirectory() as folder:
        for ending in endings(count, seed, Path(folder)):
            name = signal.Signals(ending.number).name
            said = ending.err.strip().splitlines()[-1:] or [""]
            print(
                f"{name:8} at {ending.moment:6.2f} s: {ending.code:4}, gone after {ending.gone_after:.2f} s, "
                f"{len(ending.files)} files {said[0][:90]} {ending.faults or ''}",
                flush=True,
            )
            bad += bool(ending.faults)
    print(f"{bad} of {count * len(SIGNALS)} endings at fault")
    return int(bad > 0)


if __name__ == "__main__":
    sys.exit(main())
