"""Where a release's server keeps what a start compiles, by its wheel's own code, against our rows.

python -m tests.oracle.store_places            # every release that is unpacked
python -m tests.oracle.store_places --record   # what tests/server/test_stores.py holds the rows against
"""

from __future__ import annotations

import argparse
import json
import os
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from runtime.server.releases import RELEASES, release_named
from runtime.server.stores import gathering, places
from tests.oracle.wheels import WORK

READER = Path(__file__).with_name("read_places.py")
RECORDED = Path(__file__).parent / "recorded/store_places.json"
HOME, USER = "/home/u", "u"
ENVIRONMENTS: tuple[dict[str, str], ...] = (
    {},
    {"SGLANG_CACHE_DIR": "/srv/cache"},
    {"SGLANG_CACHE_DIR": "~/elsewhere"},
    {"SGLANG_JIT_CACHE_DIR": "~/kernels", "TVM_FFI_CACHE_DIR": "/ffi"},
    {"SGLANG_DG_CACHE_DIR": "/gemm", "SGLANG_CACHE_DIR": "/srv/cache"},
    {"TRITON_CACHE_DIR": "/triton", "TORCHINDUCTOR_CACHE_DIR": "/inductor", "CUDA_CACHE_PATH": "/nv"},
    {"FLASHINFER_WORKSPACE_BASE": "/base", "TILELANG_CACHE_DIR": "/lang", "SGLANG_CUTE_AOT_CACHE_DIR": "/c"},
)


def environments(release: str) -> list[dict[str, str]]:
    return [*ENVIRONMENTS, gathering(release_named(release).release, "/root/of/all")]


def ask(release: str, environment: dict[str, str]) -> dict[str, str | None]:
    """In a process of its own, which has that environment and no other."""
    child = [sys.executable, "-I", str(READER), str(WORK / "unpacked" / release / "sglang")]
    clean = {"PATH": os.environ["PATH"], "HOME": HOME, "USER": USER, "LOGNAME": USER, **environment}
    answer = subprocess.run(child, capture_output=True, text=True, env=clean, check=True, timeout=60)
    return dict(json.loads(answer.stdout))


def ours(release: str, environment: dict[str, str]) -> dict[str, str | None]:
    """Our rows' answer in the wheel's words."""
    found = places(release_named(release).release, environment, HOME, USER)
    base = found["flashinfer-jit"][0].removesuffix("/.cache/flashinfer")
    cute = found["cute-dsl"]
    return {
        "triton": found["triton"][0],
        "inductor": found["inductor"][0],
        "driver": found["driver"][0],
        "tilelang": found["tilelang"][0],
        "flashinfer": base,
        "tvm-ffi": found["tvm-ffi"][0],
        "deep-gemm": found["deep-gemm"][0],
        "cute-dsl": cute[0] if cute else None,
    }


def differences(recorded: list[dict[str, Any]]) -> Iterator[str]:
    """A library that the release leaves be looks by its own rule, which is not the wheel's to say."""
    for row in recorded:
        mine = ours(row["release"], row["environment"])
        for id, theirs in row["places"].items():
            if theirs is not None and mine[id] != theirs:
                yield f"{row['release']} {row['environment']} {id}: {mine[id]}, SGLang says {theirs}"


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--record", action="store_true")
    arguments = parser.parse_args()
    answers = [
        {"release": row.version, "environment": given, "places": ask(row.version, given)}
        for row in RELEASES
        for given in environments(row.version)
    ]
    apart = list(differences(answers))
    print("\n".join([*apart, f"{len(answers)} asked, {len(apart)} differ"]))
    if arguments.record:
        RECORDED.write_text("".join(f"{json.dumps(answer)}\n" for answer in answers))
    raise SystemExit(1 if apart else 0)


if __name__ == "__main__":
    main()
