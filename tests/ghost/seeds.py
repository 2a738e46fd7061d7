"""The failure that this project was founded on, by the server of that day, and controls. Nothing is fitted.

    python -m tests.ghost.seeds       # the last part of `make ghost`

GLM-5.1-FP8 on eight B200s with DP attention: FlashInfer's tuning runs a dummy batch whose logits all ranks
gather, and the copy that puts them in order does not fit. 0.5.13 skips it (sgl-project/sglang#24195).
The failure itself is README's command, as it stands there, and must print what README shows.
"""

import json
import re
import shlex
import subprocess
import sys
import tempfile
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from runtime.ghost.gpus import gpus
from runtime.ghost.outside import table
from runtime.record.record import Record
from runtime.sglang.asking import Asked, Asker
from runtime.sglang.server_process import Request
from sgl_tune.servers.home import added_server, servers_home
from sgl_tune.servers.server import Server, server_at

ROOT = Path(__file__).parents[2]
README = ROOT / "README.md"
CONFIG = ROOT / "sgl_tune/presets/models/GLM-5.1-FP8.json"
RELEASE, FIXED = "0.5.12.post1", "0.5.13"
GPU = "b200"
GIB = 1 << 30
FAILS = "the seeds"
SEEDS = ("--tp", "8", "--dp", "8", "--enable-dp-attention", "--mem-fraction-static", "0.9")
SPECULATIVE = ("--speculative-algorithm", "EAGLE", "--speculative-num-steps", "3")
CONTROLS = {
    "0.85": (*SEEDS[:-1], "0.85"),
    "48 requests": (*SEEDS, "--max-running-requests", "48"),
    "tp 8 alone": ("--tp", "8", "--mem-fraction-static", "0.9"),
    "MTP": (*SEEDS, *SPECULATIVE, "--speculative-eagle-topk", "1", "--speculative-num-draft-tokens", "4"),
    "0.5.13": SEEDS,
}
CALLS = ("_flashinfer_autotune", "_dummy_run", "run_once", "_get_logits", "all_gather")
# Whatever lies outside torch, from nothing to all that was free: the size follows the KV pool.
TRIED = (6.28, 6.58)
WEIGHTS = 102.14
ROUNDED = 0.2  # one in the last digit of what was tried is a tenth of a GiB of the pool
_TEXT = re.compile(
    r"Tried to allocate ([\d.]+) GiB.*total capacity of ([\d.]+) GiB of which ([\d.]+) GiB is free"
    r".*memory ([\d.]+) GiB is allocated by PyTorch",
    re.DOTALL,
)


@dataclass(frozen=True)
class OutOfMemory:
    """The numbers of torch's text, in GiB."""

    tried: float
    total: float
    free: float
    allocated: float


PUBLISHED = OutOfMemory(tried=6.38, total=178.35, free=2.98, allocated=170.11)


def out_of_memory(text: str) -> OutOfMemory | None:
    found = _TEXT.search(text)
    return OutOfMemory(*map(float, found.groups())) if found else None


def faults(record: Record) -> list[str]:
    """Return the differences between this death and the published one."""
    ending = record.ending
    found = out_of_memory(ending.text or "")
    if ending.how != "died" or found is None:
        return [f"{ending.how} in {ending.phase}: {(ending.text or '')[:300]}"]
    functions = [frame.rpartition(" ")[2] for frame in ending.stack]
    wrong = [] if ending.phase == "autotune" else [f"died in {ending.phase}"]
    wrong += [f"{call} is not in the stack" for call in CALLS if call not in functions]
    if not TRIED[0] <= found.tried <= TRIED[1]:
        wrong.append(f"tried {found.tried} GiB")
    if abs(found.allocated - (due := allocated_at(found.tried))) > ROUNDED:
        wrong.append(f"allocated {found.allocated} GiB instead of {due:.2f}")
    if found.total != PUBLISHED.total:
        wrong.append(f"a total of {found.total} GiB")
    return wrong


def allocated_at(tried: float) -> float:
    """Return what the published death would have allocated if it had tried this size: the pool differs."""
    return WEIGHTS + (PUBLISHED.allocated - WEIGHTS) * tried / PUBLISHED.tried


def not_known(record: Record) -> str:
    """Return why the published number of free bytes cannot be this start's. It is printed, not judged."""
    found = out_of_memory(record.ending.text or "")
    if found is None:
        return ""
    missing = sorted({one.name for one in record.modules if one.state == "stub"})
    less = found.free - PUBLISHED.free
    apart = f"{abs(less):.2f} GiB {'less' if less > 0 else 'more'}"
    return (
        f"{found.free} GiB free, published {PUBLISHED.free}: {apart} here lie outside torch. "
        f"In doubt: {table().doubt_of(record.counted) / GIB:.2f} GiB of the table. "
        f"Not known: the code of kernels of {len(missing)} modules that are not there: {', '.join(missing)}"
    )


def server(release: str = RELEASE) -> Server | None:
    found = server_at(added_server(release, servers_home()).venv, "added")
    return found if isinstance(found, Server) else None


def is_added(release: str, name: str) -> bool:
    if server(release) is None:
        print(f"{name}: not run, it needs `sgl-tune server add {release}`")
        return False
    return True


def main(wanted: Sequence[str]) -> int:
    wrong = FAILS in (wanted or [FAILS]) and is_added(RELEASE, FAILS) and failure_is_wrong()
    with tempfile.TemporaryDirectory(prefix="ghost-seeds-") as folder:
        model = Path(folder) / "GLM-5.1-FP8"
        model.mkdir()
        (model / "config.json").write_text(json.dumps(json.loads(CONFIG.read_text())["config"]))
        names = [name for name in wanted or CONTROLS if name in CONTROLS]
        for release in (RELEASE, FIXED):
            of_release = [name for name in names if (name == FIXED) == (release == FIXED)]
            wrong = _controls_fail(release, model, of_release) or wrong
    return int(wrong)


def shown_in_readme() -> tuple[str, str]:
    """Return the command that README shows for this failure, and the lines below it."""
    text = README.read_text()
    blocks = re.findall(r"```console\n\$ (sgl-tune (?:[^\n]*\\\n)*[^\n]*)\n(.*?)```", text, re.DOTALL)
    (found,) = [block for block in blocks if RELEASE in block[0]]
    return found


def failure_is_wrong() -> bool:
    """Run README's command: it must print README's lines, and the record must be the published death."""
    command, shown = shown_in_readme()
    with tempfile.TemporaryDirectory(prefix="ghost-seeds-") as folder:
        file = Path(folder) / "record.json"
        words = shlex.split(command.replace("\\\n", " "))[1:]
        place = words.index("--")
        words[place:place] = ["--record", str(file)]
        ran = subprocess.run(
            [sys.executable, "-m", "sgl_tune", *words], cwd=ROOT, capture_output=True, text=True
        )
        if not file.exists():
            print(f"{FAILS}: README's command wrote no record:\n{ran.stderr}")
            return True
        record = Record.from_json(file.read_text())
    found = faults(record) + [f"not printed: {line}" for line in missing_lines(shown, ran.stdout)]
    print(f"{FAILS}: {record.ending.how}, {record.cost.cpu} CPU s; {'; '.join(found) or 'as published'}")
    print(record.ending.text, *record.ending.stack, not_known(record), sep="\n  ")
    print(ran.stdout, flush=True)
    return bool(found)


def missing_lines(shown: str, printed: str) -> list[str]:
    """Return README's lines that the command does not print, in order; `...` means left-out lines."""
    lines = printed.splitlines()
    missing = []
    for line in shown.splitlines():
        if line in ("", "..."):
            continue
        begin, cut, _ = line.partition(" ...")
        found = (n for n, one in enumerate(lines) if (one.startswith(begin) if cut else one == line))
        place = next(found, None)
        if place is None:
            missing.append(line)
        else:
            lines = lines[place + 1 :]
    return missing


def _controls_fail(release: str, model: Path, names: Sequence[str]) -> bool:
    names = [name for name in names if is_added(release, name)]
    found = server(release)
    if found is None or not names:
        return False
    with Asker(Asked(found.python, found.folders, gpus()[GPU], model.parent / release)) as asker:
        return any([_control_fails(asker, model, name) for name in names])


def _control_fails(asker: Asker, model: Path, name: str) -> bool:
    outside = {"numbers": table().text()}
    record = asker.ask(Request(("--model-path", str(model), *CONTROLS[name]), outside=outside, fold=True))
    ready = record.ending.how == "ready"
    print(
        f"{name}: {record.ending.how}, {record.cost.cpu} CPU s; {'passes' if ready else record.ending.text}"
    )
    print("  not there: " + ", ".join(sorted({one.name for one in record.inexact})), flush=True)
    return not ready


if __name__ == "__main__":
    raise SystemExit(main(sys.argv[1:]))
