"""Each pinned FlashInfer's own loader, asked for a module that a package of a moved root offers.

python -m tests.stock.flashinfer_modules --work DIR --record
"""

from __future__ import annotations

import argparse
import json
import os
import shutil
import subprocess
from pathlib import Path

from sgl_tune.stores.find import find_stores
from sgl_tune.stores.relocate import relocate
from tests.sgl_tune.stores import make
from tests.stock.flashinfer_versions import PINNED, Environment

RECORDED = Path(__file__).with_name("flashinfer_modules.json")
_ASK = """
import json, os
from flashinfer.jit import env, core
kind = getattr(core, "JitSpecNvcc", core.JitSpec)
def loaded(name):
    try:
        return kind(name, [], None, None, None, None).build_and_load() is not None
    except Exception as error:
        return False
print(json.dumps({"loaded": loaded("norm"), "elsewhere": loaded("other")}))
"""


def moved_root(folder: Path, version: str) -> Path:
    make.flashinfer_module(folder / "made/.cache/flashinfer", "norm", version)
    library = next((folder / "made").rglob("norm.so"))
    subprocess.run(["gcc", "-shared", "-o", library, "-x", "c", "/dev/null"], check=True)
    (folder / "made").rename(folder / "moved")
    for stored in find_stores(folder / "moved", lambda error: None):
        relocate(stored, str(stored.path), False, lambda: None)
    return folder / "moved"


def answer(environment: Environment, root: Path) -> dict[str, bool]:
    """With no compiler to be found, and nothing that may be built."""
    given = {
        "PATH": "/nowhere",
        "HOME": os.environ["HOME"],
        "PYTHONPATH": str(root / "flashinfer-aot"),
        "FLASHINFER_WORKSPACE_BASE": str(root),
        "FLASHINFER_CUDA_ARCH_LIST": "9.0a",
        "FLASHINFER_DISABLE_JIT": "1",
        "OMP_NUM_THREADS": "1",
    }
    command = [str(environment.python), "-c", _ASK]
    done = subprocess.run(command, capture_output=True, text=True, env=given, timeout=600)
    if done.returncode:
        raise SystemExit(f"{environment.version}: {done.stderr[-2000:]}")
    return dict(json.loads(done.stdout.splitlines()[-1]))


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawTextHelpFormatter)
    parser.add_argument("--work", type=Path, required=True)
    parser.add_argument("--record", action="store_true")
    arguments = parser.parse_args()
    answers = {}
    for version in PINNED:
        environment = Environment(version, arguments.work / version)
        environment.make()
        folder = arguments.work / f"root-{version}"
        shutil.rmtree(folder, ignore_errors=True)
        folder.mkdir()
        answers[version] = answer(environment, moved_root(folder, version))
        print(version, answers[version], flush=True)
    if arguments.record:
        RECORDED.write_text(json.dumps(answers, indent=1) + "\n")


if __name__ == "__main__":
    main()
