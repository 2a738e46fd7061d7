"""The house is small and stays so: lines of rooms and files, files of folders, fields of classes, and names
that belong to one room. What is listed as larger may only shrink: a list that is too long fails, too."""

from __future__ import annotations

import ast
import re
from collections import Counter
from collections.abc import Iterator
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[1]
PRODUCT = sorted(path for name in ("runtime", "sgl_tune") for path in (ROOT / name).rglob("*.py"))
TESTS = sorted((ROOT / "tests").rglob("*.py"))

MOST_LINES_OF_A_FILE, MOST_FILES, MOST_FIELDS = 300, 20, 15
MOST_LINES_OF_ALL_TESTS = 40_405
# The runtime core together, and each room by itself.
CORE = (
    *("server", "simulate", "devices", "forward", "layers", "moe", "models", "decoder", "graphs", "start"),
)
MOST_LINES_OF_THE_CORE = 11_246
MOST_LINES = {
    "toml": 8,
    "__init__": 14, "autotune": 2250, "devices": 587, "flashinfer": 1047, "folding": 645, "baking": 597,
    "moe_configs": 823, "config_files": 318, "config_tuning": 531, "pins": 164, "forward": 888, "ghost":
    6424, "graphs": 378, "layers": 1892, "models": 1286, "decoder": 1008, "moe": 1104, "record": 778,
    "server": 2706, "sglang": 2755, "simulate": 828, "start": 569, "__main__": 6, "asking": 683,
    "cache": 3040, "cli": 1226, "commands": 3229, "compile": 1000,
    "deployment": 2458, "errors": 38, "explain": 521, "export":
    386, "fleet": 1435, "keys": 830, "locks": 18, "log_lines": 200, "markdown": 55,
    "memory": 3162, "processes": 680,
    "reading": 104, "recorded": 555, "server_log": 1677, "servers": 1229, "ship": 4961,
    "start_report": 1230, "stores": 2441, "units": 82, "verify": 2786, "warm": 1901, "web_page": 34,
    "writing": 123,
}  # fmt: skip

LARGER_FILES: set[str] = {
    "tests/runtime/test_weights.py",
    "tests/sgl_tune/ship/test_hostile_registry.py",
    "tests/sgl_tune/ship/test_registry.py",
    "tests/sgl_tune/test_deployment.py",
}
LARGER_FOLDERS: set[str] = {"runtime/ghost/inside", "sgl_tune/commands"}
LARGER_CLASSES: set[str] = {"runtime/autotune/search.py:SearchPolicy", "runtime/record/record.py:Record"}
# Who names an architecture of SGLang's models, beside the core's families.
NAME_ARCHITECTURES: set[str] = set()
# Who names a release of SGLang, beside the room that drives it.
NAME_RELEASES: set[str] = {
    "sgl_tune/commands/explain.py",
    "sgl_tune/commands/pull.py",
    "sgl_tune/commands/push.py",
    "sgl_tune/commands/server.py",
    "sgl_tune/memory/command.py",
    "sgl_tune/memory/starting.py",
    "sgl_tune/servers/home.py",
    "sgl_tune/stores/readers/tvm_ffi.py",
    "sgl_tune/verify/files.py",
}

ARCHITECTURE = re.compile(r"\w*For(?:CausalLM|ConditionalGeneration|SequenceClassification)\w*")
RELEASE = re.compile(r"(?<![\d.])0\.5\.\d+|\(0, 5, \d+")


def _name(path: Path) -> str:
    return str(path.relative_to(ROOT))


def _lines(path: Path) -> int:
    return path.read_bytes().count(b"\n")


def _by_room() -> Counter[str]:
    found: Counter[str] = Counter()
    for path in PRODUCT:
        found[path.relative_to(ROOT).parts[1].removesuffix(".py")] += _lines(path)
    return found


def test_no_room_is_larger_than_its_lines() -> None:
    lines = _by_room()
    assert {room: count for room, count in lines.items() if count > MOST_LINES.get(room, 0)} == {}
    assert MOST_LINES.keys() == lines.keys()
    assert sum(lines[room] for room in CORE) <= MOST_LINES_OF_THE_CORE


def test_the_tests_are_no_larger_than_their_lines() -> None:
    assert sum(map(_lines, TESTS)) <= MOST_LINES_OF_ALL_TESTS


def test_no_file_is_long() -> None:
    long = {_name(path) for path in (*PRODUCT, *TESTS) if _lines(path) > MOST_LINES_OF_A_FILE}
    assert long == LARGER_FILES


def test_no_folder_is_full() -> None:
    files = Counter(_name(path.parent) for path in PRODUCT if path.name != "__init__.py")
    assert {folder for folder, count in files.items() if count > MOST_FILES} == LARGER_FOLDERS


def _fields(tree: ast.Module) -> Iterator[tuple[str, int]]:
    for node in ast.walk(tree):
        if isinstance(node, ast.ClassDef):
            yield node.name, sum(isinstance(one, ast.AnnAssign) for one in node.body)


def test_no_class_has_many_fields() -> None:
    found = {
        f"{_name(path)}:{name}"
        for path in PRODUCT
        for name, count in _fields(ast.parse(path.read_bytes()))
        if count > MOST_FIELDS
    }
    assert found == LARGER_CLASSES


@pytest.mark.parametrize(
    ("pattern", "homes", "others"),
    [
        (ARCHITECTURE, ("runtime/models/",), NAME_ARCHITECTURES),
        (RELEASE, ("runtime/sglang/",), NAME_RELEASES),
    ],
    ids=["an architecture", "a release"],
)
def test_a_name_stands_at_home(pattern: re.Pattern[str], homes: tuple[str, ...], others: set[str]) -> None:
    found = {_name(path) for path in PRODUCT if pattern.search(path.read_text())}
    assert {name for name in found if not name.startswith(homes)} == others
