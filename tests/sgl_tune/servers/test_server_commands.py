"""`sgl-tune server add`, `list` and `remove`, with a real venv, a real pip and an index of tiny wheels."""

import json
import os
import shutil
import signal
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from sgl_tune.servers.add import _RESOLVE as RESOLVE
from sgl_tune.servers.pip import NoRelease, Pip, no_release
from tests.disks import mounted
from tests.sgl_tune.running import PROGRAM, Ran, environment, run_on_terminal
from tests.sgl_tune.schemas import schema_faults
from tests.sgl_tune.servers.index import Index, release, served
from tests.sgl_tune.servers.made import VERSION
from tests.warm.processes import until

SGLANG = "sglang-0.5.17-py3-none-any.whl"


AGAIN = "not finished; `sgl-tune server add 0.5.17` goes on with it"


@pytest.fixture(scope="module")
def served_index(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Index]:
    folder = tmp_path_factory.mktemp("index")
    release(folder)
    wanted = ["--no-deps", "--only-binary=:all:", "-d", str(folder), "pip>=26,<27"]
    subprocess.run([sys.executable, "-m", "pip", "-q", "download", *wanted])
    with served(folder) as found:
        yield found


@pytest.fixture
def index(served_index: Index) -> Index:
    served_index.begin()
    return served_index


@pytest.fixture
def home(tmp_path: Path) -> Path:
    """The folder of the servers, not yet made."""
    return tmp_path / "data/servers"


@pytest.fixture(scope="module")
def asked_once(served_index: Index, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The folder of servers after an add whose question nobody answered: it has a venv and a plan."""
    home = tmp_path_factory.mktemp("asked") / "servers"
    ran = command(home, served_index, "add", "0.5.17")
    assert ran.code == 2, ran.err
    assert "no terminal to answer 'Add it?'" in ran.err
    assert "SGLang 0.5.17 for Python" in ran.err and " on disk in " in ran.err  # said before it is asked
    return home


@pytest.fixture
def planned(asked_once: Path, home: Path) -> Path:
    shutil.copytree(asked_once, home, symlinks=True)
    return home


def knows_days(index: Index) -> bool:
    """Whether the index has a pip that asks when packages were uploaded: this Python's own may be older."""
    return any(index.folder.glob("pip-*.whl"))


def command(home: Path, index: Index | None, *words: str) -> Ran:
    variables = environment(SGL_TUNE_SERVERS=str(home), **(index.environment if index else {}))
    streams = {"stdin": subprocess.DEVNULL, "capture_output": True, "text": True}
    done = subprocess.run([*PROGRAM, "server", *words], env=variables, timeout=600, **streams)
    assert "Traceback" not in done.stderr and "bug" not in done.stderr
    return Ran(done.returncode, done.stdout, done.stderr)


def listed(home: Path) -> list[dict[str, object]]:
    ran = command(home, None, "list", "--format", "json")
    assert ran.code == 0, ran.err
    told = json.loads(ran.out)
    assert schema_faults("server", told) == []
    servers: list[dict[str, object]] = told["servers"]
    return servers


def test_a_server_is_added_listed_and_removed(planned: Path, index: Index) -> None:
    home = planned
    assert [one["unusable"] for one in listed(home)] == [AGAIN]
    ran = command(home, index, "add", "0.5.17", "-y", "--format", "json")
    assert ran.code == 0, ran.err
    told = json.loads(ran.out)
    assert told["added"] and schema_faults("server", told) == []
    assert told["left_out"] == ["nvidia-cublas==13.1.0.3"]
    cuda = home / f"0.5.17/venv/lib/python{VERSION}/site-packages/nvidia/cu13"
    assert (cuda / "include/cublas_v2.h").read_text() == "// a header"
    assert not (cuda / "lib").exists()
    links = [path.readlink() for path in (home / "0.5.17/venv/bin").glob("python*")]
    assert not any(link.is_relative_to(sys.prefix) for link in links), "sgl-tune's own venv may go"
    versions = {one.name.partition(".dist-info")[0] for one in cuda.parents[1].glob("*.dist-info")}
    assert versions >= {"kernels-1.0", "codecs-2.0"}  # usable, and pinned
    assert ("readers-2.0" in versions) == knows_days(index)  # in time, if pip can see to it
    assert (cuda / "bin/nvcc").read_text() == "13.0.88"  # of the same CUDA as torch, and not the newest
    whole = [name for method, name, part in index.asked if method == "GET" and not part]
    assert not any("cublas" in name for name in whole)
    assert {oct(path.stat().st_mode & 0o777) for path in (home, home / "0.5.17")} == {"0o700"}

    (server,) = listed(home)
    expected = {"release": "0.5.17", "python": VERSION, "torch": "2.11.0", "flashinfer": "0.7.2", "cuda": 13}
    assert server.items() >= expected.items() and server["unusable"] is None
    assert command(home, None, "list", "-q").out == f"{home}/0.5.17\n"
    assert command(home, None, "add", "0.5.17").ends(0, "was added before")

    assert command(home, None, "remove", "0.5.17").code == 2  # nobody can answer
    ran = run_on_terminal("server", "remove", "0.5.17", answer="n\n", SGL_TUNE_SERVERS=str(home))
    assert "Nothing was removed." in ran.out and listed(home)
    ran = command(home, None, "remove", "0.5.17", "-y", "--format", "json")
    assert ran.code == 0 and schema_faults("server", json.loads(ran.out)) == []
    assert [path.name for path in home.iterdir()] == [".lock"] and listed(home) == []


def test_an_add_that_was_killed_is_resumed_where_it_stopped(planned: Path, index: Index) -> None:
    index.stuck = SGLANG
    adding = started(planned, index)
    assert index.hangs.wait(300)
    assert command(planned, index, "add", "0.5.17", "-y").ends(3, f"in use by process {adding.pid} on ")
    part = planned / f"0.5.17/wheels/{SGLANG}.part"
    until(lambda: part.exists() and part.stat().st_size > 0, 60)
    adding.kill()
    adding.wait()
    assert [one["unusable"] for one in listed(planned)] == [AGAIN]
    until(lambda: command(planned, index, "remove", "0.5.99").code == 2, 60)  # its processes died with it

    got = part.stat().st_size
    index.begin()
    assert command(planned, index, "add", "0.5.17", "-y").ends(0)
    assert ("GET", SGLANG, f"bytes={got}-") in index.asked
    assert all(name.endswith(".whl") for _, name, _ in index.asked)  # pip does not choose anew
    assert [one["unusable"] for one in listed(planned)] == [None]
    installed = planned / f"0.5.17/venv/lib/python{VERSION}/site-packages/sglang/data.txt"
    assert installed.stat().st_size == 640_000


def test_ctrl_c_ends_an_add_with_the_way_to_go_on(planned: Path, index: Index) -> None:
    index.stuck = SGLANG
    adding = started(planned, index)
    assert index.hangs.wait(300)
    os.killpg(adding.pid, signal.SIGINT)
    _, said = adding.communicate(timeout=300)
    assert adding.returncode == 130
    assert "`sgl-tune server add 0.5.17` goes on with it" in said and said.endswith("error: interrupted\n")
    assert "Traceback" not in said


def started(home: Path, index: Index) -> subprocess.Popen[str]:
    command = [*PROGRAM, "server", "add", "0.5.17", "-y"]
    variables = environment(SGL_TUNE_SERVERS=str(home), **index.environment)
    streams = {
        "stdin": subprocess.DEVNULL,
        "stdout": subprocess.PIPE,
        "stderr": subprocess.PIPE,
        "text": True,
    }
    return subprocess.Popen(command, env=variables, start_new_session=True, **streams)


def test_a_wheel_of_other_bytes_than_promised_is_refused(planned: Path, index: Index) -> None:
    index.spoiled = SGLANG
    assert command(planned, index, "add", "0.5.17", "-y").ends(3, "not the bytes that the index promised")
    assert not (planned / f"0.5.17/venv/lib/python{VERSION}/site-packages/sglang").exists()


def test_a_release_that_does_not_exist_is_refused_with_the_nearest(
    tmp_path: Path, index: Index, monkeypatch: pytest.MonkeyPatch
) -> None:
    for name, value in index.environment.items():
        monkeypatch.setenv(name, value)
    told = "SGLang 0.5.99 is no release that pip can install with this Python"
    with (tmp_path / "lock").open("w") as lock, pytest.raises(NoRelease, match=told) as refused:
        Pip(Path(sys.executable), tmp_path / "pip.log", lock.fileno()).run(*RESOLVE, "sglang==0.5.99")
    assert refused.value.remedy == "the nearest are 0.5.17"


def test_at_most_five_releases_are_named_around_the_one_asked_for() -> None:
    offered = [f"0.5.{number}" for number in range(20, 0, -1)] + ["odd"]
    assert no_release("0.6.0", offered).remedy == "the nearest are 0.5.16, 0.5.17, 0.5.18, 0.5.19, 0.5.20"
    assert no_release("0.5.9.post1", offered).remedy == "the nearest are 0.5.8, 0.5.9, 0.5.10, 0.5.11, 0.5.12"
    assert no_release("0.1", offered).remedy == "the nearest are 0.5.1, 0.5.2, 0.5.3, 0.5.4, 0.5.5"


@pytest.mark.parametrize(("size", "said"), [("4m", "No space left"), ("90m", "are needed there")])
def test_a_disk_that_is_too_small_is_said_and_left_as_it_was(
    tmp_path: Path, index: Index, asked_once: Path, size: str, said: str
) -> None:
    with mounted(tmp_path / "disk", f"size={size}") as disk:
        if said == "are needed there":
            shutil.copytree(asked_once, disk / "servers", symlinks=True)
        assert command(disk / "servers", index, "add", "0.5.17", "-y").ends(3, said)
        assert not index.asked
        assert all(one["unusable"] for one in listed(disk / "servers"))


def test_a_home_that_cannot_be_written_is_one_sentence() -> None:
    ran = command(Path("/proc/servers"), None, "add", "0.5.17")
    assert (ran.code, ran.out) == (2, "")
    assert ran.err.startswith("error: /proc/servers: servers cannot be kept there: ")
    assert "SGL_TUNE_SERVERS" in ran.err and len(ran.err.splitlines()) == 2


@pytest.mark.parametrize("planted", ["0.5.17", "0.5.17/venv", "0.5.17/pip.log", ".lock"])
def test_links_in_the_servers_folder_are_not_followed(tmp_path: Path, home: Path, planted: str) -> None:
    (tmp_path / "mine").mkdir()
    (tmp_path / "mine/file").write_text("mine")
    (home / planted).parent.mkdir(mode=0o700, parents=True)
    target = "mine/file" if planted in (".lock", "0.5.17/pip.log") else "mine"
    (home / planted).symlink_to(tmp_path / target)
    home.chmod(0o700)
    for words in (("add", "0.5.17", "-y"), ("remove", "0.5.17", "-y")):
        ran = command(home, None, *words)
        assert ran.code == 2 or (words[0] == "remove" and planted.startswith("0.5.17/"))
    assert (tmp_path / "mine/file").read_text() == "mine"
