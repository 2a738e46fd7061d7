"""A bundle of a gigabyte through a real registry, by hand: seconds, memory, and what a kill costs.

`python -m tests.sgl_tune.ship.large_registry --megabytes 1000`
"""

from __future__ import annotations

import argparse
import os
import shutil
import signal
import subprocess
import sys
import tempfile
import time
from pathlib import Path

from tests.sgl_tune.cache.children import finish_child, start_child
from tests.sgl_tune.running import PROGRAM, environment
from tests.sgl_tune.ship.bundles import make_bundle
from tests.sgl_tune.ship.registries import PROGRAM as REGISTRY
from tests.sgl_tune.ship.registries import Registry, started


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--megabytes", type=int, default=1000)
    size = parser.parse_args().megabytes * 10**6
    if REGISTRY is None:
        sys.exit("docker-registry is not installed")
    with tempfile.TemporaryDirectory(prefix="sgl-tune-large-") as place:
        folder = Path(place)
        bundle = folder / "large.tar.gz"
        finish_child(*start_child(lambda: make_bundle(bundle, size, gpu=None)))  # its memory is not ours
        with started(folder / "registry") as registry:
            return _there_and_back(registry, folder, bundle)


def _there_and_back(registry: Registry, folder: Path, bundle: Path) -> int:
    url = f"{registry.url}:large"
    push, pull = ("push", bundle, url), ("pull", url, "-o", folder / "back.tar.gz")
    _killed(push, 2.0)
    _timed("push, after a kill", push)
    _timed("push again", push)
    _killed(pull, 1.5)
    _timed("pull, after a kill", pull)
    _timed("pull", pull)
    same = subprocess.run(["cmp", bundle, folder / "back.tar.gz"]).returncode == 0
    if skopeo := shutil.which("skopeo"):
        copy = [skopeo, "--insecure-policy", "copy", "-q", "--src-tls-verify=false"]
        began = time.monotonic()
        source = f"docker://{url.removeprefix('oci://')}"
        subprocess.run([*copy, source, f"dir:{folder / 'copied'}"], check=True)
        print(f"{'skopeo copy':<24}{time.monotonic() - began:6.1f} s")
    print("the same bytes" if same else "OTHER BYTES")
    return not same


def _timed(what: str, words: tuple[object, ...]) -> None:
    began = time.monotonic()
    child = _started(words)
    _, status, used = os.wait4(child.pid, 0)
    child.returncode = os.waitstatus_to_exitcode(status)
    told = f"{time.monotonic() - began:6.1f} s{used.ru_utime + used.ru_stime:7.1f} s of CPU"
    print(f"{what:<24}{told}{used.ru_maxrss / 1000:7.0f} MB, exit {child.returncode}")


def _killed(words: tuple[object, ...], seconds: float) -> None:
    child = _started(words)
    time.sleep(seconds)
    child.send_signal(signal.SIGKILL)
    print(f"{words[0]}, killed after {seconds:g} s: exit {child.wait(60)}")


def _started(words: tuple[object, ...]) -> subprocess.Popen[bytes]:
    settings = environment(DOCKER_CONFIG="/nonexistent")
    return subprocess.Popen([*PROGRAM, *map(str, words), "--plain-http"], env=settings)


if __name__ == "__main__":
    sys.exit(main())
