"""Commands on files and help start without what is heavy or slow: torch, typer, planning, bundles, stores."""

import subprocess
import sys
from pathlib import Path

import pytest

from tests.sgl_tune.cache.caches import cache_folder, good
from tests.sgl_tune.running import environment
from tests.test_imports import HEAVY, ROOT, SLOW


@pytest.fixture(scope="module")
def cache_dir(tmp_path_factory: pytest.TempPathFactory) -> Path:
    root = tmp_path_factory.mktemp("caches")
    (cache_folder(root) / "rank_tp0_pp0_dp0.json").write_bytes(good())
    return root


MINDED = HEAVY - {"typer"} | SLOW - {"subprocess"}  # which typer imports
DEEPSEEK = "--model DeepSeek-V3 --gpu sm90"


@pytest.mark.parametrize(
    "words",
    [
        "--help",
        "--version",
        "verify CACHES --server 0.5.23",
        f"verify {DEEPSEEK} --server 0.5.23 --cache-dir CACHES",
        "diff CACHES/FOLDER CACHES/FOLDER",
        "prune --cache-dir CACHES --dry-run --older-than 1d",
        f"warm --dry-run {DEEPSEEK}",
    ],
)
def test_the_commands_on_files_import_nothing_heavy(words: str, cache_dir: Path) -> None:
    assert not _imported_by(words, cache_dir, HEAVY - {"typer"})


@pytest.mark.parametrize("words", ["inspect --cache-dir CACHES", "inspect --cache-dir CACHES --entries"])
def test_files_by_themselves_are_listed_without_what_is_slow(words: str, cache_dir: Path) -> None:
    assert not _imported_by(words, cache_dir, MINDED)


def test_files_by_themselves_are_judged_without_what_is_slow(cache_dir: Path) -> None:
    assert not _imported_by("verify CACHES", cache_dir, MINDED - {"dataclasses"})


def test_a_servers_log_is_judged_without_what_predicts_a_start(cache_dir: Path) -> None:
    (cache_dir / "server.log").write_text("[2026-11-20 10:00:00 TP0] Load weight begin. avail mem=77.24 GB\n")
    minded = MINDED - {"dataclasses"}
    assert not _imported_by("mem-report --log CACHES/server.log", cache_dir, minded)


@pytest.mark.parametrize("words", ["--tp 8 --dp 8", f"{DEEPSEEK} --cache-dir CACHES"])
def test_a_dry_run_of_a_warm_enters_few_files(words: str, cache_dir: Path) -> None:
    """The limit is 60, and the number may only shrink."""
    assert 20 < _files(_imported_by(f"warm --dry-run {words}", cache_dir)) <= 75


def test_a_dry_run_that_asks_a_server_enters_few_files() -> None:
    """Only imports before the question count; the number may only shrink."""
    rooms = "cli.grammar commands.warm commands.warm_recorded servers.server"
    names = ", ".join(f"sgl_tune.{name}" for name in rooms.split())
    script = f"import sys, {names}; print(*sys.modules)"
    command = [sys.executable, "-c", script]
    done = subprocess.run(command, capture_output=True, text=True, cwd=ROOT, timeout=180)
    assert 20 < _files(done.stdout) <= 78


def _files(names: str) -> int:
    """How many of these modules are files of ours."""
    paths = (ROOT.joinpath(*name.split(".")).with_suffix(".py") for name in names.split())
    return sum(path.exists() for path in paths)


def test_help_is_told_without_what_is_slow(cache_dir: Path) -> None:
    assert not _imported_by("--help", cache_dir, MINDED)


def _imported_by(words: str, cache_dir: Path, minded: set[str] | None = None) -> str:
    """Of these modules, or of all."""
    folder = cache_folder(cache_dir).relative_to(cache_dir)
    argv = words.replace("FOLDER", str(folder)).replace("CACHES", str(cache_dir)).split()
    meant = f"{minded!r} & sys.modules.keys()" if minded is not None else "sys.modules"
    script = (
        f"import sys; sys.argv = {['sgl-tune', *argv]!r}; from sgl_tune.cli.app import main; code = main();"
        f"print(code, *({meant}), file=sys.stderr)"
    )
    command = [sys.executable, "-c", script]
    done = subprocess.run(command, capture_output=True, text=True, env=environment(), timeout=180)
    code, _, imported = done.stderr.splitlines()[-1].partition(" ")
    assert code in ("0", "1"), done.stderr
    return imported
