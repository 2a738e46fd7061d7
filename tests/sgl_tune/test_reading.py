"""Files that a user named: regular, of a size that fits, text."""

import json
import os
from pathlib import Path

import pytest

from sgl_tune.cache.disk import LARGEST
from sgl_tune.errors import UsageError
from sgl_tune.reading import DEEPEST, LARGEST_TEXT, bounded_bytes, read_object, read_text
from tests.sgl_tune.cache.caches import cache_folder, good
from tests.sgl_tune.running import Ran, run, run_here

PLAN = ("warm", "--dry-run", "--gpu", "sm90")


def _sparse(path: Path, size: int = 20 << 30) -> Path:
    with path.open("wb") as file:
        file.truncate(size)
    return path


def test_what_fits_is_read_whole(tmp_path: Path) -> None:
    file = _sparse(tmp_path / "f", LARGEST_TEXT)
    assert len(bounded_bytes(file)) == LARGEST_TEXT


@pytest.mark.parametrize("kind", ["fifo", "folder", "device", "huge", "missing"])
def test_what_is_no_such_file_is_refused_at_once(tmp_path: Path, kind: str) -> None:
    path = tmp_path / "f"
    if kind == "fifo":
        os.mkfifo(path)
    elif kind == "folder":
        path.mkdir()
    elif kind == "device":
        path.symlink_to("/dev/zero")
    elif kind == "huge":
        _sparse(path)
    with pytest.raises(UsageError, match="cannot be read") as caught:
        read_text(path, "the way out")
    assert str(path) in caught.value.message and caught.value.remedy == "the way out"


@pytest.mark.parametrize(
    ("raw", "message"),
    [
        (b"", "is not JSON"),
        (b"\xff", "byte 0 is not UTF-8"),
        (b"[1]", "holds a list"),
        (b"9" * 4301, "is not JSON"),
        (b'{"a":' * 50_000 + b"1" + b"}" * 50_000, "is not JSON|nested"),
        (b'{"a":' * (DEEPEST + 1) + b"1" + b"}" * (DEEPEST + 1), "nested more than"),
    ],
)
def test_what_is_no_json_object_is_refused(tmp_path: Path, raw: bytes, message: str) -> None:
    (tmp_path / "f").write_bytes(raw)
    with pytest.raises(UsageError, match=message):
        read_object(tmp_path / "f")


def _says(ran: Ran, code: int, what: str) -> None:
    assert ran.code == code and what in ran.err, ran.err
    assert "bug in sgl-tune" not in ran.err and len(ran.err.splitlines()) <= 2


def test_a_rank_file_of_20_gb_is_told_and_not_read(tmp_path: Path) -> None:
    _sparse(cache_folder(tmp_path) / "rank_tp0_pp0_dp0.json")
    listed, judged = run("inspect", tmp_path), run("verify", tmp_path)
    for ran in (listed, judged):
        assert "21.5 GB are more than a cache file can hold" in ran.out, ran
    assert (listed.code, judged.code) == (0, 1) and "delete it, and warm again" in judged.out


def test_a_rank_file_of_a_million_entries_is_told_and_not_read(tmp_path: Path) -> None:
    file = cache_folder(tmp_path) / "rank_tp0_pp0_dp0.json"
    file.write_bytes(b"{" + b'"(op, R, ((8192, 2048), (0,)), (8,))": ["R", 1],\n' * 10**6 + b'"": 1}')
    assert file.stat().st_size > LARGEST and "more than a cache file" in run_here("inspect", tmp_path).out


def test_a_manifest_of_20_gb_does_not_hide_the_cache(tmp_path: Path) -> None:
    folder = cache_folder(tmp_path)
    (folder / "rank_tp0_pp0_dp0.json").write_bytes(good())
    _sparse(folder / "sgl-tune.json")
    ran = run_here("inspect", tmp_path)
    assert ran.code == 0 and "21.5 GB" in ran.out and "14" in ran.out


@pytest.mark.parametrize("kind", ["fifo", "huge", "binary", "folder", "long"])
def test_a_revision_that_cannot_be_read_is_one_sentence(tmp_path: Path, kind: str) -> None:
    main = tmp_path / "models--org--name" / "refs" / "main"
    main.parent.mkdir(parents=True)
    if kind == "fifo":
        os.mkfifo(main)
    elif kind == "folder":
        main.mkdir()
    elif kind == "huge":
        _sparse(main)
    else:
        main.write_bytes(b"\xff\xfe\0" if kind == "binary" else b"a" * 4000)
    ran = run(*PLAN, "--model-path", "org/name", HF_HUB_CACHE=str(tmp_path))
    _says(ran, 2, "no model at" if kind == "long" else str(main))


def test_an_error_that_quotes_a_megabyte_stays_short(tmp_path: Path) -> None:
    (tmp_path / "config.json").write_text(json.dumps({"model_type": "x" * 1_000_000}))
    ran = run_here(*PLAN, "--model-path", tmp_path)
    assert ran.code == 1 and len(ran.err) < 3000
