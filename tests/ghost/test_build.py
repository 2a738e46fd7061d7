"""The ghost's libraries are built once per environment, whole or not at all."""

import json
import os
import shutil
import signal
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path

import pytest

from runtime.ghost import build
from runtime.ghost.build import NotBuilt, is_whole, library
from tests.ghost.c_running import built, environment, make_environment
from tests.programs import program
from tests.warm.processes import until

FIRST_USE = """
import sys
from pathlib import Path
from runtime.ghost.build import library
print(library([Path(sys.argv[1])], Path(sys.argv[2])))
"""


def first_use(site: Path, cache: Path, **variables: str) -> subprocess.Popen[str]:
    command = [sys.executable, "-c", FIRST_USE, str(site), str(cache)]
    streams = {"stdout": subprocess.PIPE, "stderr": subprocess.PIPE, "text": True}
    return subprocess.Popen(command, env={**os.environ, **variables}, start_new_session=True, **streams)


def folders(cache: Path) -> list[Path]:
    return sorted(path for path in (cache / "ghost").iterdir() if path.is_dir())


@pytest.fixture
def counting_compiler(tmp_path: Path) -> dict[str, str]:
    """A `cc` that is slow and writes a line for each library that it makes."""
    made = f'case "$*" in *-shared*) echo made >> {tmp_path}/made; sleep 0.3;; esac'
    script = program(tmp_path / "bin/cc", f'{made}\nexec {shutil.which("cc")} "$@"')
    return {"PATH": f"{script.parent}:{os.environ['PATH']}"}


def test_a_second_use_builds_nothing_and_leaves_the_folder_alone() -> None:
    folder = built()
    before = {path.name: path.lstat().st_mtime_ns for path in folder.iterdir()}
    assert library([environment()], folder.parents[1]) == folder
    assert {path.name: path.lstat().st_mtime_ns for path in folder.iterdir()} == before


def test_the_folder_has_a_library_for_each_name_and_says_which() -> None:
    listed = set(json.loads((built() / "libraries.json").read_bytes()))
    assert {"libghost.so", "libcudart.so.13", "libnccl.so.2", "libcuda.so.1", "libnvidia-ml.so.1"} <= listed
    assert not list(built().glob("*.c")) and not list(built().glob("*.map"))


def test_another_environment_has_a_folder_of_its_own() -> None:
    assert built(12).name != built(13).name


def test_a_function_that_is_wanted_later_builds_anew(tmp_path: Path) -> None:
    extra = " int cudaBrandNew(void); int more(void) { return cudaBrandNew(); }"
    assert library([make_environment(tmp_path / "site", extra=extra)], tmp_path).name != built().name


def test_two_at_once_build_once_also_over_a_file(tmp_path: Path, counting_compiler: dict[str, str]) -> None:
    (tmp_path / "cache/ghost").mkdir(parents=True)
    (tmp_path / "cache/ghost" / built().name).touch()
    both = [first_use(environment(), tmp_path / "cache", **counting_compiler) for _ in range(2)]
    answers = [one.communicate(timeout=120) for one in both]
    assert answers[0][0] == answers[1][0] != "", answers
    made = (tmp_path / "made").read_text().count("made")
    listed = json.loads((Path(answers[0][0].strip()) / "libraries.json").read_bytes())
    assert made == len([name for name in listed if ".so." in name or name == "libghost.so"])


def test_a_build_that_is_killed_leaves_nothing_that_is_used_and_the_next_repairs_it(
    tmp_path: Path, counting_compiler: dict[str, str]
) -> None:
    """The next build may use another compiler; what lies there half built is repaired, too."""
    cache = tmp_path / "cache"
    for seconds in (0.0, 0.7):
        killed = first_use(environment(), cache, **counting_compiler)
        until(lambda: list(cache.glob("ghost/.building-*/*")), 60)
        time.sleep(seconds)
        os.killpg(killed.pid, signal.SIGKILL)
        killed.communicate()
        assert all(path.name.startswith(".building-") for path in folders(cache))
    half = shutil.copytree(built(), cache / "ghost" / built().name, symlinks=True)
    DAMAGE["no list"](half)
    assert library([environment()], cache) == half and is_whole(half)
    assert folders(cache) == [half]


def is_a_file(folder: Path) -> None:
    shutil.rmtree(folder)
    folder.write_text("")


DAMAGE: dict[str, Callable[[Path], object]] = {
    "a file gone": lambda folder: (folder / "libghost.so").unlink(),
    "a file cut off": lambda folder: os.truncate(folder / "libghost.so", 1000),
    "no list": lambda folder: (folder / "libraries.json").unlink(),
    "a foreign list": lambda folder: (folder / "libraries.json").write_text("[1, 2]"),
    "a file there": is_a_file,
}


@pytest.mark.parametrize("how", DAMAGE)
def test_a_half_built_folder_is_not_whole(how: str, tmp_path: Path) -> None:
    folder = shutil.copytree(built(), tmp_path / "copy", symlinks=True)
    assert is_whole(folder)
    DAMAGE[how](folder)
    assert not is_whole(folder)


def test_without_a_compiler_it_says_what_to_install(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PATH", str(tmp_path))
    monkeypatch.setattr(build.importlib.util, "find_spec", lambda name: None)
    with pytest.raises(NotBuilt) as found:
        library([environment()], tmp_path)
    assert found.value.message == "no C compiler here"
    assert "pip install ziglang" in found.value.remedy
    assert not (tmp_path / "ghost").exists()


def test_a_failed_build_leaves_one_line_and_no_file(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    version = '[ "$1" = --version ] && echo "cc 1.0" && exit 0'
    program(tmp_path / "cc", f'{version}\necho "x.c:1: error: no stdio.h" >&2; exit 1')
    monkeypatch.setenv("PATH", str(tmp_path))
    with pytest.raises(NotBuilt, match=r"cc \(cc 1.0\) failed: x.c:1: error: no stdio.h"):
        library([environment()], tmp_path)
    assert folders(tmp_path) == []


def test_the_servers_ziglang_wheel_has_a_compiler(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    zig = program(tmp_path / "ziglang/zig", "echo clang version 20")
    monkeypatch.setenv("PATH", "/usr/bin/nowhere")
    monkeypatch.setattr(build.importlib.util, "find_spec", lambda name: None)
    assert build.find_compiler([tmp_path]).command == (str(zig), "cc")


def test_a_cache_that_cannot_be_written_is_one_line_with_the_way_out(tmp_path: Path) -> None:
    (tmp_path / "ghost").write_text("a file where the folder should be")
    with pytest.raises(NotBuilt, match="nothing can be written there") as found:
        library([environment()], tmp_path)
    assert "\n" not in found.value.message and "--cache-dir" in found.value.remedy


@pytest.mark.skipif(not Path("/proc/sys").is_dir(), reason="no folder that even root cannot write to")
def test_a_home_that_is_read_only_is_one_line(tmp_path: Path) -> None:
    with pytest.raises(NotBuilt, match="nothing can be written there"):
        library([environment()], Path("/proc/sys/ghost"))


def test_a_whole_library_in_a_read_only_cache_is_used(tmp_path: Path) -> None:
    shutil.copytree(built(), tmp_path / "ghost" / built().name, symlinks=True)
    (tmp_path / "ghost").chmod(0o555)
    try:
        assert library([environment()], tmp_path).parent == tmp_path / "ghost"
        assert not list((tmp_path / "ghost").glob(".lock"))
    finally:
        (tmp_path / "ghost").chmod(0o755)


def test_a_link_in_place_of_the_lock_is_not_followed(tmp_path: Path) -> None:
    (tmp_path / "ghost").mkdir()
    victim = tmp_path / "victim"
    (tmp_path / "ghost" / ".lock").symlink_to(victim)
    with pytest.raises(NotBuilt):
        library([environment()], tmp_path)
    assert not victim.exists()


@pytest.mark.parametrize(
    ("system", "machine"), [("darwin", "arm64"), ("linux", "ppc64le"), ("linux", "armv7l")]
)
def test_another_machine(system: str, machine: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(build.sys, "platform", system)
    monkeypatch.setattr(build.platform, "machine", lambda: machine)
    with pytest.raises(NotBuilt, match=f"this is {system} on {machine}"):
        library([environment()], tmp_path)


def test_a_machine_with_arm_is_not_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(build.platform, "machine", lambda: "aarch64")
    build._check_machine()
