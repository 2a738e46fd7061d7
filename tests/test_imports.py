"""The house: which folder may import which. Read from the source, so a type's import is an arrow too."""

from __future__ import annotations

import ast
import sys
from collections.abc import Iterator
from functools import cache
from graphlib import CycleError, TopologicalSorter
from pathlib import Path
from typing import Literal, NamedTuple

import pytest

ROOT = Path(__file__).resolve().parents[1]
HEAVY = {"torch", "transformers", "flashinfer", "safetensors", "triton", "numpy", "oras", "requests", "typer"}
HEAVY |= {"sgl_tune.warm.story", "sgl_tune.warm.replaying"}
# What makes the start of a command on files long, and is not always needed: what plans a server, compiles,
# reads a bundle, or a store; and what makes classes of fields, which imports `inspect`.
SLOW = {"dataclasses", "filelock", "subprocess"}
SLOW |= {"runtime.server.resolve", "sgl_tune.compile.everything", "sgl_tune.commands.warm_root"}
SLOW |= {"sgl_tune.ship.archive", "sgl_tune.stores.describe"}
# What one decision of a command chooses; the rest of it is there without.
CHOSEN = {"runtime.toml", "runtime.ghost.build", "runtime.sglang.asking", "runtime.sglang.server_process"}
_BY_COMMANDS = (
    "asking.question cli.completion cli.usage commands.warm_core commands.warm_outcome commands.warm_recorded"
    " commands.warm_root commands.warm_tuned config_tuning.page config_tuning.plan deployment.launch"
    " deployment.pasted_command deployment.project_file pins.lock servers.server verify.by_server"
    " verify.environment warm.result_page"
)
CHOSEN |= {f"sgl_tune.{name}" for name in _BY_COMMANDS.split()}
EFFECTS = {"os", "pathlib", "time", "subprocess", "io", "shutil", "tempfile", "socket", "random", "datetime"}

# A room is a folder, or a module beside the folders. Lower rooms first: none imports one below itself here.
RUNTIME = {
    "toml": "",
    "server": "",
    "models": "server",
    "record": "",
    "ghost": "toml",
    "folding": "ghost",
    "baking": "ghost",
    "flashinfer": "server record ghost folding",
    "autotune": "server flashinfer",
    "moe_configs": "record ghost flashinfer autotune",
    "sglang": "server record ghost folding baking flashinfer moe_configs",
    "simulate": "server",
    "devices": "server simulate",
    "forward": "server",
    "layers": "server simulate forward",
    "moe": "server simulate forward autotune layers",
    "decoder": "server devices forward layers moe",
    "graphs": "server devices forward decoder",
    "start": "server devices forward moe decoder graphs",
}
SGL_TUNE = {
    "sgl_tune": "",
    "errors": "",
    "locks": "",
    "processes": "errors locks",
    "units": "server errors",
    "reading": "errors units",
    "log_lines": "errors reading",
    "writing": "errors locks",
    "web_page": "",
    "cli": "server sgl_tune errors",
    "markdown": "cli",
    "servers": "sglang errors locks processes units reading writing cli",
    "deployment": "toml server models flashinfer sglang errors units record reading cli servers",
    "cache": "server flashinfer sgl_tune errors locks units record reading deployment",
    "config_files": "record errors reading writing",
    "stores": "record flashinfer sglang errors locks units reading cli deployment cache config_files",
    "keys": "server flashinfer errors units deployment cache",
    "asking": "record ghost baking sglang errors processes units reading writing cli servers deployment",
    "recorded": "record ghost sglang errors units reading servers deployment cache asking",
    "verify": "server record flashinfer sglang errors units reading cli servers deployment cache stores keys"
    " asking recorded",
    "fleet": "flashinfer sglang errors units record reading cli deployment cache stores keys verify",
    "explain": "record sglang units cli cache asking recorded verify",
    "server_log": "toml server devices errors units log_lines cli",
    "memory": "server record ghost sglang simulate devices forward moe graphs start errors processes units"
    " reading writing web_page cli servers deployment asking server_log",
    "start_report": "sglang errors processes units log_lines web_page cli stores server_log",
    "compile": "record ghost baking sglang errors processes units cli servers deployment stores asking"
    " recorded start_report",
    "warm": "server record ghost flashinfer devices autotune moe start sgl_tune errors processes units"
    " cli deployment cache keys recorded start_report",
    "config_tuning": "record ghost autotune moe_configs errors processes reading cli recorded"
    " config_files warm",
    "export": "server flashinfer errors processes units reading deployment cache",
    "ship": "server flashinfer sgl_tune errors locks processes units record reading writing cli deployment"
    " cache stores asking verify",
    "pins": "record errors units reading writing cli deployment config_files ship",
    "commands": "ghost sgl_tune errors processes units writing cli servers deployment cache stores keys"
    " asking recorded verify fleet explain server_log memory start_report compile warm config_tuning export"
    " ship config_files pins markdown",
    "__main__": "cli",
}
HOUSE = RUNTIME | SGL_TUNE

# What a function imports, for its module must be there without: no torch in the commands on files, no
# Triton on a CPU, no typer before Ctrl-C is caught, no job for a dry run, no planning where none is named.
WITHOUT = {
    "runtime.ghost.inside.small": "torch",
    "runtime.sglang.inside.start": "torch",
    "runtime.layers.attention.base": "triton",
    "runtime.layers.norm": "triton",
    "runtime.layers.recurrence.base": "triton",
    "runtime.layers.rope": "triton",
    "runtime.layers.scaled_linear": "triton",
    "runtime.moe.flashinfer_cutlass": "flashinfer",
    "runtime.moe.tuned": "flashinfer",
    "sgl_tune.asking.asking": "runtime.ghost.build runtime.sglang.asking runtime.sglang.server_process",
    "sgl_tune.asking.whom": "sgl_tune.deployment.launch sgl_tune.servers.server",
    "sgl_tune.cache.scan": "dataclasses",
    "sgl_tune.cli.app": "typer sgl_tune.cli.completion",
    "sgl_tune.cli.failures": "sgl_tune.cli.usage",
    "sgl_tune.commands.explain": "sgl_tune.verify.by_server",
    "sgl_tune.config_tuning.compiler": "torch",
    "sgl_tune.config_tuning.worker": "torch",
    "sgl_tune.commands.inspect": "sgl_tune.ship.archive sgl_tune.stores.describe",
    "sgl_tune.commands.mem_report": "subprocess sgl_tune.deployment.project_file",
    "sgl_tune.commands.verify": "subprocess sgl_tune.warm.replaying runtime.server.resolve"
    " sgl_tune.ship.archive sgl_tune.stores.describe",
    "sgl_tune.commands.warm": "sgl_tune.asking.question sgl_tune.commands.warm_core"
    " sgl_tune.commands.warm_outcome sgl_tune.commands.warm_recorded sgl_tune.commands.warm_root"
    " sgl_tune.compile.everything runtime.server.resolve sgl_tune.verify.environment",
    "sgl_tune.commands.warm_recorded": "sgl_tune.commands.warm_tuned sgl_tune.verify.by_server"
    " sgl_tune.config_tuning.page sgl_tune.config_tuning.plan sgl_tune.pins.lock"
    " sgl_tune.warm.result_page",
    "sgl_tune.commands.warm_wishes": "sgl_tune.verify.environment",
    "sgl_tune.deployment.file_option": "sgl_tune.deployment.project_file",
    "sgl_tune.deployment.project_file": "runtime.toml",
    "sgl_tune.deployment.resolve": "sgl_tune.servers.server",
    "sgl_tune.deployment.selection": "sgl_tune.deployment.pasted_command",
    "sgl_tune.memory.core.measure": "torch",
    "sgl_tune.memory.core.predict": "torch",
    "sgl_tune.warm.job": "torch",
    "sgl_tune.warm.prove": "torch",
    "sgl_tune.warm.recorded.prove": "torch",
    "sgl_tune.warm.recorded.worker": "torch",
    "sgl_tune.warm.replay_worker": "torch",
    "sgl_tune.recorded.asked": "sgl_tune.deployment.pasted_command",
    "sgl_tune.stores.readers.moe_configs": "dataclasses",
    "sgl_tune.verify.environment": "sgl_tune.deployment.launch",
    "sgl_tune.verify.scope": "runtime.server.resolve",
    "sgl_tune.verify.verdict_line": "runtime.server.resolve",
    "sgl_tune.warm.worker": "torch",
}

When = Literal["start", "call", "never"]  # a module is imported, a function is called, for types alone


class Import(NamedTuple):
    importer: str
    target: str
    when: When


def _name(path: Path) -> str:
    parts = path.relative_to(ROOT).with_suffix("").parts
    return ".".join(parts[:-1] if parts[-1] == "__init__" else parts)


@cache
def modules() -> dict[str, ast.Module]:
    paths = [path for package in ("runtime", "sgl_tune") for path in (ROOT / package).rglob("*.py")]
    return {_name(path): ast.parse(path.read_bytes()) for path in sorted(paths)}


def _imported(node: ast.AST, when: When = "start") -> Iterator[tuple[str, When]]:
    """Dotted names, of members too: `from a.b import c` is a.b.c."""
    if isinstance(node, ast.Import):
        yield from ((alias.name, when) for alias in node.names)
    elif isinstance(node, ast.ImportFrom):
        assert node.level == 0 and node.module, "imports are written out in full"
        yield from ((f"{node.module}.{alias.name}", when) for alias in node.names)
    elif isinstance(node, (ast.FunctionDef, ast.AsyncFunctionDef, ast.Lambda)):
        when = "call"
    elif isinstance(node, ast.If) and ast.unparse(node.test) == "TYPE_CHECKING":
        when = "never"
    for child in ast.iter_child_nodes(node):
        yield from _imported(child, when)


def _own(name: str) -> str | None:
    """The module of ours that a dotted name is or is in."""
    while name and name not in modules():
        name = name.rpartition(".")[0]
    return name or None


@cache
def imports() -> frozenset[Import]:
    return frozenset(
        Import(importer, target, when)
        for importer, tree in modules().items()
        for name, when in _imported(tree)
        if (target := _own(name)) and target != importer
    )


def room(module: str) -> str:
    return ".".join(module.split(".")[1:2]) or module


@cache
def needs(module: str) -> frozenset[str]:
    """What is heavy of all that an import of it imports."""
    names = {name for name, when in _imported(modules()[module]) if when == "start"}
    mine = {own for name in names if (own := _own(name)) not in (None, module)}
    found = {module, *(name.split(".")[0] for name in names)} & (HEAVY | SLOW | CHOSEN)
    return frozenset(found).union(*(needs(str(own)) for own in mine))


def test_the_table_has_no_arrow_up() -> None:
    rooms = list(HOUSE)
    for name, below in HOUSE.items():
        assert set(below.split()) <= set(rooms[: rooms.index(name)]), name


def test_every_module_has_a_room_and_every_room_a_module() -> None:
    assert {room(module) for module in modules()} == HOUSE.keys() | {"runtime"}
    assert not RUNTIME.keys() & SGL_TUNE.keys()


def test_a_room_imports_only_what_stands_below_it() -> None:
    odd = {
        (importer, target)
        for importer, target, _ in imports()
        if room(importer) != room(target) and room(target) not in HOUSE[room(importer)].split()
    }
    assert not odd


# Imported when a start begins; by then the server has imported torch.
AFTER_TORCH = {f"runtime.ghost.inside.{name}" for name in ("host", "mode", "plans")} | {
    f"runtime.folding.inside.{name}" for name in ("alike", "fold", "state", "taken")
}


@pytest.mark.parametrize("module", [name for name in modules() if ".inside" in name])
def test_what_runs_inside_a_server_imports_only_what_is_there(module: str) -> None:
    assert all(".inside" in target for importer, target, _ in imports() if importer == module)
    at_once = {name.split(".")[0] for name, when in _imported(modules()[module]) if when == "start"}
    assert at_once <= {"runtime", *sys.stdlib_module_names, *(["torch"] if module in AFTER_TORCH else [])}


def test_no_modules_import_each_other_in_a_circle() -> None:
    graph: dict[str, set[str]] = {}
    for importer, target, _ in imports():
        graph.setdefault(importer, set()).add(target)
    try:
        TopologicalSorter(graph).prepare()
    except CycleError as error:
        pytest.fail(" -> ".join(error.args[1]))


def test_a_function_imports_only_what_its_module_must_be_there_without() -> None:
    hidden = {(importer, target) for importer, target, when in imports() if when == "call"}
    odd = {
        (importer, target)
        for importer, target in hidden
        if not set(WITHOUT.get(importer, "").split()) & (needs(target) - needs(importer))
    }
    assert not odd
    assert WITHOUT.keys() == {importer for importer, _ in hidden}


@pytest.mark.parametrize("module", [name for name in modules() if room(name) == "server"])
def test_the_rules_of_the_server_are_pure(module: str) -> None:
    names = {name.split(".")[0] for name, when in _imported(modules()[module]) if when == "start"}
    assert names <= {"runtime", *sys.stdlib_module_names} - EFFECTS
