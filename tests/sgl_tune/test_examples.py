"""The example caches are what they claim to be, and pages about them show what the commands really print.

`SGL_TUNE_REWRITE=1 pytest tests/sgl_tune/test_examples.py` writes the present output into the pages.
"""

from __future__ import annotations

import gzip
import json
import os
import re
import shlex
import shutil
import subprocess
import time
from pathlib import Path

import pytest

from runtime.server.cache_key import cache_key
from sgl_tune.cache.layouts.find import find_caches
from sgl_tune.cache.manifest import read_manifest
from sgl_tune.cache.record import parse_key, read_cache_file, serialise
from sgl_tune.cache.scan import Scanner
from sgl_tune.deployment.deployment import deployment_from_json
from sgl_tune.deployment.options import ServerFlags
from sgl_tune.errors import UsageError
from sgl_tune.fleet.node import parse_node
from sgl_tune.fleet.take import take_holdings
from sgl_tune.verify.environment import Target
from sgl_tune.verify.stores import machine_of
from tests.sgl_tune.cache.corpus import build_corpus
from tests.sgl_tune.running import ROOT, run, run_on_terminal

EXAMPLES = ROOT / "cache-examples"
CACHES = find_caches(EXAMPLES / "cache")
README = EXAMPLES / "README.md"
BLOCK = re.compile(r"```console\n(.*?)```\n", re.DOTALL)
TABLE = re.compile(r"(?<=\| file \| next start \| findings \|\n\|---\|---\|---\|\n)(?:\|.*\n)*")
DAYS = 40 * 86400
TUNED = (
    read_manifest(EXAMPLES / "cache/flashinfer/autotune/0.7.2/sm90/4aaede739ed1db5a/sgl-tune.json").created
    or ""
)
THEN = time.strftime("%Y-%m-%dT%H:%M:%S+00:00", time.gmtime(time.time() - DAYS))


@pytest.mark.parametrize("cache", CACHES, ids=lambda cache: str(cache.key))
def test_a_real_cache_fits_its_manifest_and_is_of_an_older_release(cache) -> None:  # type: ignore[no-untyped-def]
    scanned = Scanner(digests=True).scan(cache)
    assert scanned.agree and not [file for file in scanned.files if file.content.problem]
    if cache.manifest is None:
        assert cache.key == "ad601cc9b3a885f2", "only the server's own has no manifest"
        return
    manifest = read_manifest(cache.manifest)
    assert cache_key(manifest.key_parts) == cache.key
    assert manifest.files == {file.path.name: file.digest for file in scanned.files}
    with pytest.raises(UsageError, match="the core plans as"):
        deployment_from_json(manifest.deployment, "example")


def test_every_broken_file_is_one_of_the_corpus() -> None:
    example = read_cache_file(
        EXAMPLES / "cache/flashinfer/autotune/0.7.2/sm90/4aaede739ed1db5a/rank_tp0_pp0_dp0.json"
    )
    few = {key: value for key, value in example.entries.items() if _bucket(key) in (8, 8192)}
    corpus = build_corpus(example.metadata, few)
    files = sorted((EXAMPLES / "broken").iterdir())
    assert len(files) > 20
    for path in files:
        raw, expected = path.read_bytes(), corpus[path.stem].raw
        if path.stem == "gzip":  # whose header names the system, which Python 3.13 leaves unknown
            raw, expected = gzip.decompress(raw), gzip.decompress(expected)
        assert raw == expected, path.name
    assert (EXAMPLES / "broken" / "good.json").read_bytes() == serialise(example.metadata, few)


def test_the_nodes_hold_the_caches_that_are_here() -> None:
    machine = machine_of(ServerFlags(), Target(None, ""), None, None)
    holdings = take_holdings(EXAMPLES / "cache", machine, lambda: None, {"HOME": "/nowhere"})
    lines = (EXAMPLES / "nodes.jsonl").read_bytes().splitlines(keepends=True)
    nodes = [parse_node(line).holdings for line in lines[:-1]]
    assert len(nodes) == 9 and nodes[0] is not None and nodes[0].caches == holdings.caches


def _bucket(key: str) -> int | None:
    parts = parse_key(key)
    return parts.bucket if parts else None


@pytest.fixture(scope="module")
def copy(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Forty days old, as the README has it."""
    folder = tmp_path_factory.mktemp("tour")
    shutil.copytree(EXAMPLES, folder / "cache-examples")
    for manifest in folder.rglob("sgl-tune.json"):
        manifest.write_text(manifest.read_text().replace(TUNED, THEN))
    for path in folder.rglob("*"):
        os.utime(path, (time.time() - DAYS,) * 2)
    return folder


def _tour(block: str, folder: Path) -> str:
    """The block with what its commands print now."""
    shown = []
    for line in block.splitlines():
        if not line.startswith("$ "):
            continue
        shown.append(line)
        program, *arguments = shlex.split(line[2:])
        if program == "sgl-tune":
            printed = run_on_terminal(*arguments, cwd=folder, NO_COLOR="1").out
            shown += [text.rstrip() for text in printed.replace(THEN, TUNED).rstrip().splitlines()]
        else:
            subprocess.run([program, *arguments], cwd=folder, check=True)
    return "\n".join(shown) + "\n"


@pytest.mark.parametrize("page", [README, ROOT / "docs/fleet.md"], ids=lambda page: page.name)
def test_a_page_shows_what_is_printed(page: Path, copy: Path) -> None:
    text = page.read_text()
    rewritten = text
    for block in BLOCK.findall(text):
        printed = _tour(block, copy)
        assert all(len(line) <= 80 or line.startswith("$ ") for line in printed.splitlines())
        rewritten = rewritten.replace(f"```console\n{block}", f"```console\n{printed}")
    if os.environ.get("SGL_TUNE_REWRITE"):
        page.write_text(rewritten)
        return
    assert rewritten == text


def test_the_table_of_broken_files_is_what_verify_says(copy: Path) -> None:
    target = "cache-examples/h200.env.json"
    ran = run("verify", "cache-examples/broken", "--target", target, "--format", "json", cwd=copy)
    assert ran.code == 1
    rows = "".join(
        f"| `{Path(file['path']).name}` | {file['verdict']} | "
        f"{', '.join(dict.fromkeys(f['code'] for f in file['findings'])) or '-'} |\n"
        for file in json.loads(ran.out)["files"]
    )
    text = README.read_text()
    if os.environ.get("SGL_TUNE_REWRITE"):
        README.write_text(TABLE.sub(lambda _: rows, text, count=1))
        return
    shown = TABLE.search(text)
    assert shown and shown[0] == rows
