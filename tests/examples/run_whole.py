"""Every command of every recipe, in order and outside of a container: nothing is left at a dry run.

`make recipes`, or `python -m tests.examples.run_whole [--work DIR] [--only WORD]`: ten minutes, 3 GB and
what pip downloads. The server's image is a virtual environment with torch and FlashInfer, into which pip
installs our own wheel as the Dockerfile says; `warm` tunes and proves on the CPU; what is pushed goes to
Debian's docker-registry and to moto's S3 on loopback; kubectl, skopeo and umoci do their part where they
are installed. What a recipe names and this machine lacks is replaced, and each value that was is printed.
Exit code 1 where a command did not end as it should.
"""

from __future__ import annotations

import argparse
import shutil
import sys
import tempfile
import time
from collections.abc import Callable
from pathlib import Path

from tests.examples.whole import images, pages, pods
from tests.examples.whole.machine import Machine
from tests.examples.whole.told import Told
from tests.sgl_tune.ship.registries import PROGRAM as REGISTRY

RECIPES: dict[str, Callable[[Machine, Told], None]] = {
    "Dockerfile: what lies beside it": images.beside,
    "Dockerfile: target tool": images.tool,
    "github-actions.yml": images.workflow,
    "Dockerfile: target server, pulled": images.pulled,
    "Dockerfile: target server, warmed": images.warmed,
    "warm-and-push.yaml: what it asks for": pods.secrets,
    "warm-and-push.yaml": pods.job,
    "init-container.yaml": pods.init_container,
    "image-volume.yaml": pods.image_volume,
    "leader-worker-set.yaml": pods.leader_worker_set,
    "read-only-image.sh and its compose file": images.read_only,
    "docs/ship.md": pages.ship,
    "docs/fleet.md": pages.fleet,
}


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--work", type=Path, help="keeps everything; its image is taken again")
    parser.add_argument("--only", default="", help="recipes of this name, in a --work that is filled")
    given = parser.parse_args()
    if REGISTRY is None:
        sys.exit("docker-registry is not installed")
    work = (given.work or Path(tempfile.mkdtemp(prefix="sgl-tune-recipes-"))).resolve()
    try:
        with Machine.started(work, anew=not given.only) as machine:
            return _run_all(machine, given.only)
    finally:
        if not given.work:
            shutil.rmtree(work, ignore_errors=True)


def _run_all(machine: Machine, only: str) -> int:
    all_told = []
    for name, recipe in RECIPES.items():
        if only not in name:
            continue
        told, began = Told(name, machine.work), time.monotonic()
        try:
            recipe(machine, told)
        except Exception as error:
            told.fail(f"{type(error).__name__}: {error}")
        print(told.text(time.monotonic() - began), flush=True)
        all_told.append(told)
    commands, ran = sum(told.commands for told in all_told), sum(told.ran for told in all_told)
    failed = [told.name for told in all_told if told.failures]
    print(f"{len(all_told)} recipes, {commands} commands, {ran} run; failed: {', '.join(failed) or 'none'}")
    return bool(failed)


if __name__ == "__main__":
    sys.exit(main())
