"""The server that a question is put to is found in a fixed order, and never run to find out what it is."""

import sys
from pathlib import Path

import pytest

from sgl_tune.servers.home import MARK
from sgl_tune.servers.server import USUAL_GB, NoServer, Server, adding, find_server, server_at
from tests.programs import program
from tests.sgl_tune.running import ROOT
from tests.sgl_tune.servers.made import NO_CUDA, VERSION, package, server, venv


@pytest.fixture(autouse=True)
def home(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Where added servers are; this environment is an empty venv."""
    venv(tmp_path / "here")
    monkeypatch.setattr(sys, "executable", str(tmp_path / "here/bin/python3"))
    monkeypatch.setenv("SGL_TUNE_SERVERS", str(tmp_path / "servers"))
    return tmp_path / "servers"


def added(home: Path, release: str, whole: bool = True) -> None:
    server(home / release / "venv", release)
    for folder in (home, home / release, home / release / "venv"):
        folder.chmod(0o700)
    if whole:
        (home / release / MARK).write_text("{}")


def why(found: Server | NoServer) -> str:
    assert isinstance(found, NoServer), found
    assert "\n" not in found.why + found.remedy
    return found.why


def test_a_named_server_is_read_from_its_files(tmp_path: Path) -> None:
    packages = server(tmp_path / "venv")
    for named in ("venv", "venv/bin/python3"):
        found = find_server(str(tmp_path / named), None)
        assert found == Server(
            tmp_path / "venv/bin/python3", VERSION, (packages,), packages, "0.5.17", "2.11.0", "0.7.2", 13,
            "--server",
        )  # fmt: skip


def test_the_sglang_of_this_environment_comes_before_an_added_one(tmp_path: Path, home: Path) -> None:
    package(tmp_path / f"here/lib/python{VERSION}/site-packages", "sglang", "0.5.17")
    torch = package(tmp_path / f"here/lib/python{VERSION}/site-packages", "torch", "2.11.0").parent / "torch"
    (torch / "version.py").write_text("cuda = '12.8'\n")
    added(home, "0.5.23")
    found = find_server(None, None)
    assert isinstance(found, Server) and (found.sglang, found.cuda, found.found) == ("0.5.17", 12, "here")
    found = find_server(None, "0.5.23")
    assert isinstance(found, Server) and (found.sglang, found.found) == ("0.5.23", "added")
    assert "is 0.5.17, not 0.5.20" in why(find_server(None, "0.5.20"))


def test_the_newest_of_the_added_ones_that_are_whole_is_taken(home: Path) -> None:
    for release in ("0.5.9", "0.5.17", "0.5.12.post1"):
        added(home, release)
    added(home, "0.5.23", whole=False)
    found = find_server(None, None)
    assert isinstance(found, Server) and (found.sglang, found.found) == ("0.5.17", "added")
    assert "0.5.23" in why(find_server(None, "0.5.23"))


def test_without_any_the_way_to_one_is_shown() -> None:
    found = find_server(None, "0.5.23")
    assert why(found) == "no SGLang 0.5.23 is here, and none was added"
    assert isinstance(found, NoServer)
    assert found.remedy.startswith("`sgl-tune server add 0.5.23` (")
    assert f"{USUAL_GB} GB on disk) or run this where SGLang is installed" in found.remedy


def test_a_server_that_is_there_is_not_added_again(home: Path) -> None:
    added(home, "0.5.17")
    assert adding("0.5.17") == adding(None)
    assert adding(None) == "SGLang 0.5.17 is added here and answers that: name it with --server 0.5.17"
    assert "server add 0.5.23" in adding("0.5.23")


def test_another_release_than_asked_for_is_refused(tmp_path: Path) -> None:
    server(tmp_path / "venv")
    assert "its SGLang is 0.5.17, not 0.5.23" in why(find_server(str(tmp_path / "venv"), "0.5.23"))


def test_a_torch_without_cuda_is_refused(tmp_path: Path) -> None:
    server(tmp_path / "venv", torch=NO_CUDA)
    assert "its torch 2.11.0 was built without CUDA" in why(server_at(tmp_path / "venv"))


def test_a_venv_without_sglang_is_refused(tmp_path: Path) -> None:
    packages = venv(tmp_path / "venv")
    assert why(server_at(tmp_path / "venv")) == f"{tmp_path}/venv: no SGLang is installed there"
    info = package(packages, "sglang", "0.5.17")
    (packages / "sglang/__init__.py").unlink()  # uninstalled by hand
    assert why(server_at(tmp_path / "venv")) == f"{tmp_path}/venv: no SGLang is installed there"
    (info / "direct_url.json").write_text("{}")  # installed from a checkout, where its code is
    assert "no torch" in why(server_at(tmp_path / "venv"))


def test_two_versions_of_one_package_are_refused(tmp_path: Path) -> None:
    package(server(tmp_path / "venv"), "torch", "2.14.0")
    assert "torch is there twice: 2.11.0 and 2.14.0" in why(server_at(tmp_path / "venv"))


def test_what_is_no_python_is_refused(tmp_path: Path) -> None:
    program(tmp_path / "script", "touch ran")
    (tmp_path / "dead").symlink_to("nowhere")
    assert "is no Python program" in why(server_at(tmp_path / "script"))
    assert "leads to nothing" in why(server_at(tmp_path / "dead"))
    assert "no such file" in why(server_at(tmp_path / "nothing"))
    assert "no bin/python3 in it" in why(server_at(tmp_path))
    assert not (tmp_path / "ran").exists()


def test_packages_of_the_system_and_of_pth_files_are_found(tmp_path: Path) -> None:
    there = server(tmp_path / "there")
    packages = venv(tmp_path / "venv")
    (packages / "a.pth").write_text(f"# a comment\nimport os; os.mkdir({str(tmp_path / 'ran')!r})\n{there}\n")
    found = server_at(tmp_path / "venv")
    assert isinstance(found, Server) and found.folders == (packages, there) and found.packages == there
    assert not (tmp_path / "ran").exists()


@pytest.mark.parametrize(
    "change", ["sglang/__init__.py", "sglang-0.5.17.dist-info/RECORD", "flashinfer/new.py"]
)
def test_a_change_of_the_environment_changes_its_fingerprint(tmp_path: Path, change: str) -> None:
    packages = server(tmp_path / "venv")
    found = server_at(tmp_path / "venv")
    assert isinstance(found, Server)
    before = found.fingerprint()
    assert found.fingerprint() == before
    (packages / change).write_text("changed")
    assert found.fingerprint() != before


@pytest.mark.parametrize("part", ["servers", "servers/0.5.23", "servers/0.5.23/venv"])
def test_an_added_server_that_others_may_write_is_not_used(tmp_path: Path, home: Path, part: str) -> None:
    added(home, "0.5.23")
    (tmp_path / part).chmod(0o777)
    assert isinstance(find_server(None, None), NoServer)


def test_a_link_in_the_servers_folder_is_not_followed(tmp_path: Path, home: Path) -> None:
    added(tmp_path / "elsewhere", "0.5.23")
    home.mkdir(mode=0o700)
    (home / "0.5.23").symlink_to(tmp_path / "elsewhere/0.5.23")
    assert isinstance(find_server(None, None), NoServer)


@pytest.mark.parametrize("page", ["README.md", "CHANGELOG.md", "docs/upgrade.md", "docs/new-release.md"])
def test_a_page_gives_the_size_of_a_server_that_the_commands_give(page: str) -> None:
    assert f"{USUAL_GB} GB" in (ROOT / page).read_text()
