"""vLLM's own code, from its wheel, reads what `export --to vllm` writes: which file, and what it finds.

The demo is warmed, exported and then loaded by a process a rank, as a server of so many ranks does it: vLLM
names the file, its ranks compare what they have, FlashInfer loads it, and a dummy forward asks for every
entry. After that the files are damaged in turn, and what vLLM does is held against what `verify` says.

python -m tests.stock.vllm_reader --work DIR
"""

import argparse
import ast
import json
import logging
import os
import subprocess
import sys
import types
import zipfile
from collections.abc import Callable, Iterator
from datetime import timedelta
from pathlib import Path
from types import ModuleType, SimpleNamespace
from typing import Any

from tests.sgl_tune.running import ROOT
from tests.sgl_tune.ship.registries import free_port

VERSION = "0.33.0"
_WARMUP = "vllm/model_executor/warmup"
_NAMES, _LOADS = f"{_WARMUP}/flashinfer_autotune_cache.py", f"{_WARMUP}/kernel_warmup.py"
_LOADING = ("_autotune_cache_fingerprint", "_all_ranks_have_matching_cache", "_load_shared_autotune_cache")
_DEMO = ("--tp", "2", "--dp", "2", "--device", "cpu")
_CONFIG_HASH = "the hash that vLLM makes of its own configuration"
_SECONDS = 600


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--work", type=Path, required=True, help="where the wheel and caches are, and stay")
    parser.add_argument("--version", default=VERSION)
    parser.add_argument("--ranks", type=int, default=2)
    parser.add_argument("--rank", type=int, help=argparse.SUPPRESS)
    asked = parser.parse_args()
    work = asked.work.resolve()
    if asked.rank is None:
        raise SystemExit(0 if _compare(work, asked.version, asked.ranks) else 1)
    print(json.dumps(_as_rank(work, asked.version, asked.rank, asked.ranks)))


def _compare(work: Path, version: str, ranks: int) -> bool:
    _unpacked(work, version)
    caches, root = work / "caches", work / "flashinfer_autotune_cache"
    first = _cli("warm", *_DEMO, "--cache-dir", caches)
    folder = root / json.loads(_all_ranks(work, version, 0)[0])["folder"]
    written = _cli("export", first["key"], "--cache-dir", caches, "--to", "vllm", "--tp", ranks, "-o", folder)
    here = work / "env.json"
    here.write_text(json.dumps(_cli("env")))
    good, paths = True, [Path(path) for path in written["files"]]
    for damage, change in _damages():
        kept = {path: path.read_bytes() for path in paths}
        change(paths)
        told = _cli("verify", folder, "--target", here)
        theirs = [json.loads(said) for said in _all_ranks(work, version, ranks)]
        wants = damage == "none"
        agree = all(one["loaded"] == wants for one in theirs) and _says_good(told) == wants
        hits = sum(one["hits"] for one in theirs)
        asks = sum(one["asked"] for one in theirs)
        paths_agree = {one["path"] for one in theirs} == set(map(str, paths))
        agree = agree and paths_agree and (hits == asks > 0) == wants
        good &= agree
        words = f"loaded by {sum(one['loaded'] for one in theirs)} of {ranks} ranks, {hits} hits of {asks}"
        print(f"{damage:24} {'ok  ' if agree else 'FAIL'} {words}; verify: {_verdicts(told)}", flush=True)
        for path, raw in kept.items():
            path.write_bytes(raw)
    return good


def _damages() -> Iterator[tuple[str, Callable[[list[Path]], object]]]:
    yield "none", lambda paths: None
    yield "one rank has no file", lambda paths: paths[0].unlink()
    yield "one rank's is cut", lambda paths: paths[-1].write_bytes(paths[-1].read_bytes()[:-40])
    yield ("one rank lacks an entry", lambda paths: _edit(paths[-1], lambda its: its.pop(max(its))))
    yield "another CUDA's", lambda paths: [_edit(path, _other_cuda) for path in paths]


def _edit(path: Path, change: Callable[[dict[str, Any]], object]) -> None:
    document = json.loads(path.read_text())
    change(document)
    path.write_text(json.dumps(document))


def _other_cuda(document: dict[str, Any]) -> None:
    document["_metadata"]["cuda_version"] = "11.0"


def _says_good(told: dict[str, Any]) -> bool:
    verdicts = {file["verdict"] for file in told["files"]}
    return verdicts == {"hit"} and not any(found["code"].startswith("vllm-") for found in told["findings"])


def _verdicts(told: dict[str, Any]) -> str:
    codes = {found["code"] for found in told["findings"]} - {"target-unknown"}
    return ", ".join([*(file["verdict"] for file in told["files"]), *sorted(codes)])


def _as_rank(work: Path, version: str, rank: int, ranks: int) -> dict[str, Any]:
    names = _names_module(work, version, rank)
    config = SimpleNamespace(
        cache_config=SimpleNamespace(mamba_block_size=None, kv_cache_layout=None),
        compute_hash=lambda include_version: _CONFIG_HASH,
        parallel_config=SimpleNamespace(data_parallel_rank=0),
    )
    path = names.resolve_rank_flashinfer_autotune_file(SimpleNamespace(vllm_config=config))
    if not ranks:
        return {"folder": path.parent.name}
    import torch.distributed as dist
    from flashinfer.autotuner import AutoTuner

    store = dist.TCPStore("127.0.0.1", int(os.environ["VLLM_READER_PORT"]), ranks, rank == 0)
    dist.init_process_group("gloo", store=store, rank=rank, world_size=ranks, timeout=timedelta(seconds=60))
    group = SimpleNamespace(world_size=ranks, cpu_group=dist.group.WORLD)
    loaded = _loading(work, version)(path, AutoTuner.get(), group)
    asked, hits = _asked(work, rank)
    dist.destroy_process_group()
    return {"path": str(path), "loaded": loaded, "asked": asked, "hits": hits}


def _asked(work: Path, rank: int) -> tuple[int, int]:
    """By a dummy forward of this rank, every bucket as tuning asks for it; nothing is measured."""
    from runtime.autotune.record import record_asked
    from runtime.devices.cpu import Cpu
    from runtime.start.rehearsal import Rehearsal
    from sgl_tune.deployment.options import ServerFlags
    from sgl_tune.deployment.project_file import meant_by
    from sgl_tune.deployment.selection import deployment_of
    from sgl_tune.keys.plan import make_plan
    from sgl_tune.warm.job import make_job

    deployment = deployment_of(meant_by(ServerFlags.of(tp=2, dp=2), folder=work)[0])
    (cache,) = make_job(make_plan(deployment), work, "cpu", ()).caches
    rehearsal = Rehearsal(cache.model, cache.parallel, cache.runtime, Cpu(), rank)
    with record_asked() as record:
        rehearsal.forward_all(cache.serving_rows)
    return len(record.asked), record.hits


def _names_module(work: Path, version: str, rank: int) -> ModuleType:
    """The whole file, with only what it imports of vLLM in the place of vLLM."""
    root = work / "flashinfer_autotune_cache"
    envs = {"VLLM_FLASHINFER_AUTOTUNE_CACHE_DIR": str(root), "VLLM_CACHE_ROOT": str(work)}
    _stand_in("vllm.envs", **envs)
    _stand_in("vllm.config", CacheConfig=object, VllmConfig=object, replace=None)
    _stand_in("vllm.logger", init_logger=logging.getLogger)
    world = SimpleNamespace(rank_in_group=rank)
    _stand_in("vllm.distributed.parallel_state", get_world_group=lambda: world)
    module = ModuleType("flashinfer_autotune_cache")
    exec(compile((_unpacked(work, version) / _NAMES).read_text(), _NAMES, "exec"), module.__dict__)
    return module


def _loading(work: Path, version: str) -> Callable[..., bool]:
    """Three functions of a file that imports all of vLLM."""
    import torch

    tree = ast.parse((_unpacked(work, version) / _LOADS).read_text())
    tree.body = [node for node in tree.body if isinstance(node, ast.FunctionDef) and node.name in _LOADING]
    found: dict[str, Any] = {"json": json, "torch": torch, "Path": Path}
    exec(compile(tree, _LOADS, "exec"), found)
    loading: Callable[..., bool] = found[_LOADING[-1]]
    return loading


def _stand_in(name: str, **members: Any) -> None:
    parts = name.split(".")
    for end in range(1, len(parts) + 1):
        module = sys.modules.setdefault(".".join(parts[:end]), types.ModuleType(".".join(parts[:end])))
        if end > 1:
            setattr(sys.modules[".".join(parts[: end - 1])], parts[end - 1], module)
    vars(sys.modules[name]).update(members)


def _unpacked(work: Path, version: str) -> Path:
    folder = work / version
    if not (folder / _LOADS).exists():
        work.mkdir(parents=True, exist_ok=True)
        wanted = ("--no-deps", "--only-binary", ":all:", f"vllm=={version}", "-d", str(work))
        _run([sys.executable, "-m", "pip", "download", "-q", *wanted])
        (wheel,) = work.glob(f"vllm-{version}-*.whl")
        with zipfile.ZipFile(wheel) as archive:
            for name in (_NAMES, _LOADS):
                archive.extract(name, folder)
        wheel.unlink()
    return folder


def _all_ranks(work: Path, version: str, ranks: int) -> list[str]:
    """Of no ranks: one process says only the folder."""
    os.environ["VLLM_READER_PORT"] = str(free_port())
    running = [_start(work, version, rank, ranks) for rank in range(ranks or 1)]
    try:
        said = [process.communicate(timeout=_SECONDS) for process in running]
    finally:
        for process in running:
            process.kill()
    if any(process.returncode for process in running):
        raise SystemExit("\n".join(error for _, error in said))
    return [out.splitlines()[-1] for out, _ in said]


def _start(work: Path, version: str, rank: int, ranks: int) -> subprocess.Popen[str]:
    words = ("--work", work, "--version", version, "--ranks", ranks, "--rank", rank)
    command = [sys.executable, "-m", "tests.stock.vllm_reader", *map(str, words)]
    return subprocess.Popen(command, cwd=ROOT, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)


def _cli(*arguments: object) -> dict[str, Any]:
    command = [sys.executable, "-m", "sgl_tune.cli.app", *map(str, arguments), "--format", "json"]
    done = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, timeout=_SECONDS)
    if not done.stdout:
        raise SystemExit(done.stderr)
    answer: dict[str, Any] = json.loads(done.stdout)
    return answer


def _run(command: list[str]) -> None:
    done = subprocess.run(command, capture_output=True, text=True, timeout=_SECONDS)
    if done.returncode:
        raise SystemExit(f"{' '.join(command)}: {done.stderr}")


if __name__ == "__main__":
    main()
