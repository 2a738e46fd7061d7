"""Every command in README and docs: taken as it is written, and run where a laptop can."""

from __future__ import annotations

import re
import shlex
import shutil
from collections.abc import Iterator
from importlib.util import find_spec
from pathlib import Path

import pytest

from sgl_tune.cli.grammar import Pages
from sgl_tune.cli.pages import COMMANDS
from sgl_tune.pins.lock import write_lock
from tests.sgl_tune.running import ROOT, run_here
from tests.sgl_tune.ship.signing import make_keys
from tests.sgl_tune.start_report.logs import head, loaded, served
from tests.sgl_tune.stores.make import whole_root

PAGES = [ROOT / "README.md", *sorted((ROOT / "docs").glob("*.md"))]
CALL = re.compile(rf"(?<![\w/.-])sgl-tune ((?:{'|'.join(COMMANDS)})\b[^\n`]*)")
COMMENT = re.compile(r"\s{2,}#.*|\s+#\s.*")
AFTER = re.compile(r"\s+(?:\||>|&&|;|<).*")
PROSE = re.compile(r"[a-z] (?:is|says|and|on|fills|with)\b")
# Names that a reader replaces with his own.
OWN = {
    "8e60": "4393", "/caches": "caches", "/cache": "caches",
    "/caches/monday": "caches", "/caches/tuesday": "cache-examples/cache",
    "/env.json": "env.json", "env-of-the-new-image.json": "env.json", "sglang": "nobody",
    "/srv/root": "root", "ROOT": "root", "PLACE": "/mnt/root",
    "DIR": "out", "MODEL": "Qwen3-30B-A3B", "M": "Qwen3-30B-A3B",
}  # fmt: skip
NEEDS_MORE = {
    "doctor",
    "env",
    "explain",
    "mem-report",
    "warm",
    "push",
    "pull",
    "server",
}  # torch, a server: are read
WITHOUT_A_MACHINE = (
    *(() if find_spec("zstandard") else (".zst",)),
    "unpack oci://",  # a registry
    "--replay",
    "--server ~",
    "--measure",
    "pack -o cache.tar.gz --gpu",
    "-f sgl-tune.toml:",
    "flashinfer-store",
    "report -",
)


def _calls(page: Path) -> Iterator[str]:
    """As a shell would be given them: without comments, without what is piped on, and no advice printed."""
    text = re.sub(r"\\\n\s*| -> .*", " ", page.read_text())
    for told in CALL.findall(text):
        call = _quoted(AFTER.sub("", COMMENT.sub("", told)).strip())
        beside = "--node-rank 0 " in call  # two commands, one beside the other
        if "..." not in call and not beside and not PROSE.search(call):
            yield call


def _quoted(call: str) -> str:
    """Without the quote that ends what it stands in."""
    try:
        shlex.split(call)
    except ValueError:
        return call.rstrip("'\"")
    return call


CALLS = sorted({call for page in PAGES for call in _calls(page)})


@pytest.fixture(scope="module")
def place(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("docs")
    shutil.copytree(ROOT / "cache-examples", folder / "cache-examples")
    shutil.copytree(ROOT / "cache-examples" / "cache", folder / "caches")
    shutil.copy(ROOT / "cache-examples" / "h200.env.json", folder / "env.json")
    shutil.copy(ROOT / "cache-examples" / "nodes.jsonl", folder)
    (folder / "cold.json").write_text('{"phases": [{"store": "tactics", "saves_seconds": 24.5}]}')
    for name in ("server.log", "yesterday.log"):
        (folder / name).write_text(head() + loaded() + served(31))
    whole_root(folder / "root")
    assert run_here("pack", "4393", "--cache-dir", folder / "caches", "-o", folder / "cache.tar.gz").code == 0
    assert run_here("unpack", folder / "cache.tar.gz", "--cache-dir", folder / "locked").code == 0
    (folder / "sgl-tune.lock").write_bytes((write_lock(folder / "locked") or folder).read_bytes())
    for bundle in ("root.tar.gz", *(("root.tar.zst",) if find_spec("zstandard") else ())):
        assert run_here("pack", folder / "root", "-o", folder / bundle).code == 0
    if find_spec("cryptography"):
        make_keys(folder, "cosign")
    rank = next((folder / "caches").rglob("rank_tp0_pp0_dp0.json"))
    for name in ("rank_tp0_pp0_dp0.json", "rank_tp1_pp0_dp0.json"):
        shutil.copy(rank, folder / name)
    return folder


def test_the_pages_show_every_command() -> None:
    assert len(CALLS) > 50 and {call.split()[0] for call in CALLS} == set(COMMANDS)


@pytest.mark.parametrize("call", CALLS)
def test_a_command_is_taken_as_it_is_written(call: str) -> None:
    name, *words = shlex.split(call)
    Pages().get_command(None, name).make_context(name, words)


@pytest.mark.parametrize(
    "call",
    [
        call
        for call in CALLS
        if call.split()[0] not in NEEDS_MORE and not any(word in call for word in WITHOUT_A_MACHINE)
    ],
)
def test_a_command_on_files_does_its_work(call: str, place: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    if "--sign" in call or "--trust" in call:
        pytest.importorskip("cryptography")
    if ".zst" in call:
        pytest.importorskip("zstandard")
    monkeypatch.chdir(place)
    monkeypatch.setenv("SGLANG_CACHE_DIR", "caches")
    words = [OWN.get(word, "out" if word.startswith("~") else word) for word in shlex.split(call)]
    done = run_here(*words)
    assert done.code in (0, 1) and "error:" not in done.err, done.err


def _anchors(page: Path) -> set[str]:
    titles = (line.lstrip("# ").lower() for line in page.read_text().splitlines() if line.startswith("#"))
    return {re.sub(r"[^\w\- ]", "", title).replace(" ", "-") for title in titles}


@pytest.mark.parametrize("page", PAGES, ids=lambda page: page.name)
def test_a_link_leads_to_a_file_and_a_title_that_are_there(page: Path) -> None:
    for link in re.findall(r"\]\(([^)\s:]+)\)", page.read_text()):
        name, _, anchor = link.partition("#")
        there = page.parent / name if name else page
        assert there.exists() and (not anchor or anchor in _anchors(there)), link


def test_the_house_names_files_that_are_there() -> None:
    named = re.findall(r"`([\w/]+\.(?:py|toml))`", (ROOT / "docs" / "architecture.md").read_text())
    rooms = [ROOT / name for name in ("runtime", "sgl_tune", "tests")]
    there = "\n".join(str(path) for room in rooms for path in room.rglob("*.*"))
    assert [name for name in named if f"/{name}\n" not in there] == []


def test_what_others_can_do_to_whom_is_one_page() -> None:
    lines = (ROOT / "docs" / "security.md").read_text().splitlines()
    assert len(lines) <= 95 and max(map(len, lines)) <= 110
