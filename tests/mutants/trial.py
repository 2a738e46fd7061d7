"""One mutant's trial: its tests in a forked interpreter, against a copy of the tree that has the change."""

from __future__ import annotations

import os
import resource
import shutil
import sys
from collections.abc import Sequence
from multiprocessing import get_context
from multiprocessing.process import BaseProcess
from pathlib import Path

TREES = ("runtime", "sgl_tune", "tests", "cache-examples")
OURS = ("runtime", "sgl_tune", "tests")
CPU_SECONDS = 60
_SERVER = Path(__file__).parents[1] / "server"
_CHECKS = Path(__file__).parents[2] / "runtime/server/checks"
EVERYWHERE = (
    *("tests/server/test_recorded_servers.py", "tests/server/test_recorded_architectures.py"),
    *(f"tests/server/{file.name}" for file in sorted(_SERVER.glob("test_*.py")) if file.stem != "test_flags"),
    *("tests/sgl_tune/test_keys.py", "tests/sgl_tune/test_plan.py", "tests/sgl_tune/test_deployment.py"),
)
_SHAPES = (
    *("tests/runtime/test_pool_plan.py", "tests/runtime/test_parallel.py", "tests/sgl_tune/test_presets.py"),
    *("tests/runtime/test_fused_shared_experts.py", "tests/runtime/test_graphs.py"),
)
_FILES = tuple(
    f"tests/sgl_tune/cache/test_{name}.py" for name in ("flashinfer_versions", "loader", "environment")
)
_COMMANDS = (
    *("tests/server/test_flags.py", "tests/oracle/test_mistakes.py"),
    *(f"tests/sgl_tune/test_server_{name}.py" for name in ("command", "config")),
)
_KEYS = tuple(
    f"tests/{name}.py"
    for name in ("stock/test_keys_stock", "sgl_tune/test_presets", "sgl_tune/test_warm_dry_run")
)
MORE = {
    **dict.fromkeys(("grammar", "types", "table", "nearest", "spelling", "config_file"), _COMMANDS),
    **dict.fromkeys(("call_shapes", "op_shapes", "keys", "plan", "plan_view", "tuning_memory"), _KEYS),
    **dict.fromkeys(("config", "pool_plan", "sizing", "parallel", "call_rules"), _SHAPES),
    **dict.fromkeys(("start_sizes", "attention_buffers", "graphs", "gpus", "rows"), _SHAPES),
    "backends": ("tests/runtime/test_moe_backends.py",),
    "flashinfer": _FILES,
    "releases": ("tests/sgl_tune/cache/test_access.py", "tests/sgl_tune/cache/test_environment.py"),
}


def copy_of(tree: Path, into: Path) -> Path:
    for name in TREES:
        shutil.copytree(tree / name, into / name, ignore=shutil.ignore_patterns("__pycache__"))
    shutil.copy(tree / "pyproject.toml", into)
    return into


def tests_for(module: str) -> list[str]:
    """The module's own tests first: they are the likeliest to fail."""
    files = dict.fromkeys((*EVERYWHERE, *MORE.get(module, ())))
    own = [f"tests/server/test_{module}.py"]
    if (_CHECKS / f"{module}.py").is_file():
        own += [f"tests/server/test_{name}.py" for name in ("refusal_cases", "recorded_combinations")]
    return sorted(files, key=lambda file: file not in own)


def started(copy: Path, tests: Sequence[str], log: Path, keep_bytecode: bool = False) -> BaseProcess:
    trial = get_context("fork").Process(target=_run, args=(copy, tests, log, keep_bytecode))
    trial.start()
    return trial


def _run(copy: Path, tests: Sequence[str], log: Path, keep_bytecode: bool) -> None:
    """What is loaded of the project is loaded again, from the copy."""
    import pytest

    resource.setrlimit(resource.RLIMIT_CPU, (CPU_SECONDS, CPU_SECONDS))
    os.setsid()
    with log.open("w") as file:
        os.dup2(file.fileno(), 1)
        os.dup2(file.fileno(), 2)
    for name in [name for name in sys.modules if name.partition(".")[0] in OURS]:
        del sys.modules[name]
    sys.path[:] = [str(copy), *(place for place in sys.path if place not in ("", str(Path.cwd())))]
    sys.dont_write_bytecode = not keep_bytecode
    os.chdir(copy)
    import runtime

    assert Path(runtime.__path__[0]).parent == copy
    verdict = pytest.main(["-x", "-q", "--tb=line", "-p", "no:cacheprovider", f"--rootdir={copy}", *tests])
    sys.stdout.flush()
    os._exit(int(verdict))
