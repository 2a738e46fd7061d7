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
_TREE = Path(__file__).parents[2]
_SERVER = _TREE / "tests/server"
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
MORE = {
    **dict.fromkeys(("grammar", "types", "table", "nearest", "spelling", "config_file"), _COMMANDS),
    **dict.fromkeys(("config", "pool_plan", "sizing", "parallel", "call_rules"), _SHAPES),
    **dict.fromkeys(("start_sizes", "attention_buffers", "graphs", "gpus", "rows"), _SHAPES),
    "backends": ("tests/runtime/test_moe_backends.py",),
    "flashinfer": _FILES,
    "releases": ("tests/sgl_tune/cache/test_access.py", "tests/sgl_tune/cache/test_environment.py"),
}


# The likeliest to fail, by the folder of the module.
NEAREST = {
    "runtime/server/checks": (
        "tests/server/test_refusal_cases.py",
        "tests/server/test_recorded_combinations.py",
    ),
    "runtime/server/decoders": ("tests/server/test_decoders.py", "tests/runtime/test_family_fields.py"),
    "sgl_tune/keys": (
        *(
            f"tests/sgl_tune/test_{name}.py"
            for name in ("keys", "plan", "nearest", "presets", "warm_dry_run")
        ),
        *("tests/sgl_tune/explain/test_differences.py", "tests/warm/test_tunable.py"),
        *("tests/stock/test_keys_stock.py", "tests/stock/test_lookup_rules.py"),
    ),
}


def copy_of(tree: Path, into: Path) -> Path:
    for name in TREES:
        shutil.copytree(tree / name, into / name, ignore=shutil.ignore_patterns("__pycache__"))
    shutil.copy(tree / "pyproject.toml", into)
    return into


def tests_for(module: str) -> list[str]:
    """The module's own tests first: they are the likeliest to fail."""
    own = [f"tests/server/test_{module}.py"]
    for folder, tests in NEAREST.items():
        if (_TREE / folder / f"{module}.py").is_file():
            own += tests
    files = dict.fromkeys((*EVERYWHERE, *MORE.get(module, ()), *own[1:]))
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
