"""pack and unpack of a gigabyte in 60,000 files, beside tar with the same compressor at the same level.

    python benchmarks/bundles.py

Every command is a process of its own, and they take turns; of several rounds the best counts. The files are
as a fleet has them, mostly Triton's, filled with what this Python's own library holds.
"""

from __future__ import annotations

import argparse
import random
import shutil
import sys
import sysconfig
import tempfile
from concurrent.futures import ProcessPoolExecutor
from dataclasses import asdict
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parents[1]))
from benchmarks.timed import Cost, timed, write_result
from sgl_tune.ship.members import GZIP_LEVEL, ZSTD_LEVEL
from tests.sgl_tune.stores import make

_POOL = 200 << 20
_KERNEL = {"cubin": 52_000, "ttgir": 15_000, "ttir": 10_000, "llir": 38_000, "ptx": 38_000, "source": 4_000}
_LIBRARY = 2_000_000


def fill(root: Path) -> tuple[int, int]:
    """Files and bytes."""
    draw, pool = random.Random(7), _pool()

    def grow(path: Path, most: int) -> None:
        size = draw.randrange(most // 2, most)
        at = draw.randrange(len(pool) - size)
        path.write_bytes(path.read_bytes() + pool[at : at + size])

    for number in range(6_500):
        folder = make.triton_kernel(root / "triton", f"kernel_{number}")
        for suffix, most in _KERNEL.items():
            grow(folder / f"kernel_{number}.{suffix}", most)
    for number in range(1_000):
        make.graph(root / "inductor", f"graph_{number}")
        make.cute_object(root / "cute_aot", f"object_{number}")
    for number in range(300):
        make.tilelang_kernel(root / "tilelang", f"kernel_{number}")
        make.gemm(root / "deep_gemm", f"gemm_{number}")
    for number in range(150):
        folder = make.flashinfer_module(root / ".cache/flashinfer", f"module_{number}")
        grow(folder / f"module_{number}.so", _LIBRARY)
    sizes = [path.stat().st_size for path in root.rglob("*") if path.is_file()]
    return len(sizes), sum(sizes)


def _pool() -> bytes:
    parts, there = [], 0
    for path in sorted(Path(sysconfig.get_paths()["stdlib"]).parent.rglob("*")):
        if path.suffix in (".so", ".py", ".a", ".pyc") and path.is_file() and there < _POOL:
            parts.append(path.read_bytes())
            there += len(parts[-1])
    return b"".join(parts)[:_POOL]


def commands(root: Path, folder: Path) -> dict[str, list[str]]:
    program = [sys.executable, "-m", "sgl_tune.cli.app"]
    new, out = str(folder / "new"), folder / "out"
    return {
        "pack .tar.gz": [*program, "pack", str(root), "-o", f"{out}.tar.gz"],
        f"tar | gzip -{GZIP_LEVEL}": ["sh", "-c", f"tar -C {root} -cf - . | gzip -{GZIP_LEVEL} > {out}.tgz"],
        "unpack .tar.gz": [*program, "unpack", f"{out}.tar.gz", "--cache-dir", new],
        "tar -xzf": ["sh", "-c", f"mkdir {new} && tar -C {new} -xzf {out}.tar.gz"],
        "pack .tar.zst": [*program, "pack", str(root), "-o", f"{out}.tar.zst"],
        f"tar | zstd -{ZSTD_LEVEL}": [
            "sh",
            "-c",
            f"tar -C {root} -cf - . | zstd -q -{ZSTD_LEVEL} > {out}.tzst",
        ],
        "unpack .tar.zst": [*program, "unpack", f"{out}.tar.zst", "--cache-dir", new],
        "tar --zstd -xf": ["sh", "-c", f"mkdir {new} && tar -C {new} --zstd -xf {out}.tar.zst"],
    }


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawTextHelpFormatter)
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--folder", help="Where to work: a disk with 4 GB free.")
    arguments = parser.parse_args()
    with tempfile.TemporaryDirectory(dir=arguments.folder) as place:
        folder = Path(place)
        with ProcessPoolExecutor(1) as apart:  # what it holds would count as its children's
            files, size = apart.submit(fill, folder / "root").result()
        costs: dict[str, list[Cost]] = {}
        for _ in range(arguments.rounds):
            for name, command in commands(folder / "root", folder).items():
                costs.setdefault(name, []).append(timed(command))
                shutil.rmtree(folder / "new", ignore_errors=True)
        sizes = {name: (folder / name).stat().st_size for name in ("out.tar.gz", "out.tar.zst", "out.tgz")}
    best = {name: min(found, key=lambda cost: cost.wall) for name, found in costs.items()}
    print(f"{files:,} files, {size / 1e9:.2f} GB{'':<6}{'wall s':>9}{'CPU s':>9}{'MB':>8}")
    for name, cost in best.items():
        print(f"{name:<26}{cost.wall:>9.1f}{cost.cpu:>9.1f}{cost.megabytes:>8.0f}")
    write_result(
        "bundles",
        arguments.rounds,
        files=files,
        bytes=size,
        packed=sizes,
        results={name: asdict(cost) for name, cost in best.items()},
        all_wall_seconds={name: [round(cost.wall, 1) for cost in found] for name, found in costs.items()},
    )


if __name__ == "__main__":
    main()
