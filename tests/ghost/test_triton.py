"""The server's own Triton compiles for the ghost: it refuses what does not compile; its answers are kept."""

import json
import runpy
import shutil
import subprocess
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from runtime.ghost.inside.triton import kept
from tests.ghost.stock import Smallest

SCRIPT = Path(__file__).with_name("triton_kernels.py")
Answers = dict[str, dict[str, Any]]
Launch = Callable[..., Answers]


def _entry(folder: Path, answer: dict[str, Any]) -> Path:
    return next(folder.rglob(f"{answer['digest']}.json"))


def _link(entry: Path) -> None:
    entry.rename(entry.with_suffix(".elsewhere"))
    entry.symlink_to(entry.with_suffix(".elsewhere"))


def _change(entry: Path, **told: Any) -> None:
    entry.write_text(json.dumps({**json.loads(entry.read_text()), **told}))


POISONS: dict[str, Callable[[Path], object]] = {
    "good:16": lambda entry: entry.chmod(0o620),
    "good:32": _link,
    "good:64": lambda entry: _change(entry, hash="0" * 64),
    "good:128": lambda entry: entry.write_text("{"),
    "good:512": lambda entry: _change(entry, shared=-1),
}


@pytest.fixture(scope="module")
def launch(smallest: Smallest, tmp_path_factory: pytest.TempPathFactory) -> Launch:
    """Launches kernels in one process of the server's Python, with a folder in which answers are kept."""
    work, ghost = tmp_path_factory.mktemp("work"), smallest.ghost()

    def launched(folder: Path, *kernels: str) -> Answers:
        command = [smallest.python, "-I", SCRIPT, ghost.library / "libghost.so", folder, *kernels]
        env = {"HOME": str(work), "PATH": "/usr/bin:/bin", **ghost.environment()}
        done = subprocess.run(command, env=env, stdout=subprocess.PIPE, text=True, check=True, timeout=300)
        return dict(json.loads(done.stdout.splitlines()[-1]))

    return launched


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tmp_path_factory.mktemp("kernels")


@pytest.fixture(scope="module")
def first(launch: Launch, folder: Path) -> Answers:
    return launch(folder, "good", "no_pointer", "large", "wants_a_package", "tuned", *POISONS)


def test_a_kernel_that_triton_compiles_is_launched(first: Answers) -> None:
    good = first["good"]
    assert (good["type"], good["hits"], good["launches"], good["inexact"]) == (None, [False], 1, [])


def test_a_kernel_with_a_type_error_fails_in_tritons_own_words(first: Answers) -> None:
    bad = first["no_pointer"]
    assert bad["type"] == "CompilationError" and not bad["inexact"] and not bad["launches"]
    assert "tl.load(size + at)" in bad["text"] and "Unsupported ptr type" in bad["text"]


def test_a_kernel_with_more_shared_memory_than_the_gpu_has_fails_as_on_it(first: Answers) -> None:
    large = first["large"]
    assert large["type"] == "OutOfResources"
    assert f"shared memory, Required: {2 * 4 * 256 * 256}, Hardware limit: 232448" in large["text"]


def test_what_this_machine_lacks_is_named_and_the_start_goes_on(first: Answers) -> None:
    lacking = first["wants_a_package"]
    assert lacking["type"] is None and lacking["launches"] == 1
    [(kind, name, why)] = lacking["inexact"]
    assert kind == "kernel" and name.endswith(".wants_a_package") and "a_package_that_is_not_there" in why


def test_a_configuration_that_does_not_compile_is_not_chosen(first: Answers) -> None:
    tuned = first["tuned"]
    assert tuned["type"] is None and tuned["hits"] == [False]  # a listener hears of what was compiled


@pytest.fixture(scope="module")
def second(launch: Launch, folder: Path, first: Answers) -> Answers:
    """The output of a later process, after some kept entries were changed."""
    for kernel, poison in POISONS.items():
        poison(_entry(folder, first[kernel]))
    return launch(folder, "good", "large", *POISONS)


def test_a_later_process_compiles_nothing_again(first: Answers, second: Answers) -> None:
    for kernel in ("good", "large"):
        assert second[kernel] == {**first[kernel], "hits": [True]}


@pytest.mark.parametrize("kernel", POISONS)
def test_an_entry_that_another_may_have_written_or_that_does_not_fit_is_not_used(
    first: Answers, second: Answers, folder: Path, kernel: str
) -> None:
    assert second[kernel] == first[kernel]
    entry = _entry(folder, first[kernel])
    assert not entry.is_symlink() and not entry.stat().st_mode & 0o022
    assert json.loads(entry.read_text())["hash"] == first[kernel]["digest"]


def test_kernels_are_kept_by_the_code_of_ours_that_kept_them(tmp_path: Path) -> None:
    ours = Path(kept.__file__).parent
    folders = []
    for name, more in (("as it is", ""), ("changed", "\n# another stage\n")):
        room = shutil.copytree(ours, tmp_path / name, ignore=shutil.ignore_patterns("__pycache__"))
        with (room / "compiling.py").open("a") as file:
            file.write(more)
        copy: Any = runpy.run_path(str(room / "kept.py"))
        copy["use"](str(tmp_path), "llir")
        folders.append(copy["Manager"]("key")._entry.parent)
    assert folders[0] != folders[1]
