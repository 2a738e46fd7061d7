"""Inductor's own counters over a cache that was moved: of its graphs, and of AOTAutograd's.

    python -m tests.stock.inductor_move --record

A function is compiled on the CPU with a cache of its own. The cache is then copied elsewhere with all times
lost, the first is removed, and a fresh process compiles the function again.
"""

from __future__ import annotations

import argparse
import json
import os
import shutil
import subprocess
import sys
import tempfile
from pathlib import Path
from typing import Any

RECORDED = Path(__file__).with_name("inductor_move.json")
_COMPILE = """
import json, torch
from torch._dynamo.utils import counters
function = torch.compile(lambda x, y: torch.nn.functional.gelu(x @ y).sum(0) * 2)
function(torch.ones(8, 8), torch.ones(8, 8))
found = {**counters["inductor"], **counters["aot_autograd"]}
print(json.dumps({"torch": torch.__version__, **{n: found.get(n, 0) for n in (
    "fxgraph_cache_hit", "fxgraph_cache_miss", "autograd_cache_hit", "autograd_cache_miss")}}))
"""


def compiled(cache: Path) -> dict[str, Any]:
    environment = {**os.environ, "TORCHINDUCTOR_CACHE_DIR": str(cache), "TORCHINDUCTOR_COMPILE_THREADS": "1"}
    command = [sys.executable, "-c", _COMPILE]
    done = subprocess.run(command, capture_output=True, text=True, env=environment, timeout=600)
    if done.returncode:
        raise SystemExit(done.stderr[-2000:])
    return dict(json.loads(done.stdout.splitlines()[-1]))


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawTextHelpFormatter)
    parser.add_argument("--record", action="store_true")
    arguments = parser.parse_args()
    with tempfile.TemporaryDirectory() as folder:
        made, moved = Path(folder) / "made", Path(folder) / "moved"
        answers = {"cold": compiled(made)}
        shutil.copytree(made, moved, copy_function=shutil.copyfile)
        shutil.rmtree(made)
        for path in moved.rglob("*"):
            os.utime(path, (10**9, 10**9))
        answers["moved"] = compiled(moved)
    print(json.dumps(answers, indent=1))
    if arguments.record:
        RECORDED.write_text(json.dumps(answers, indent=1) + "\n")


if __name__ == "__main__":
    main()
