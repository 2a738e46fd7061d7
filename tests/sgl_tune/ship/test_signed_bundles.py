"""Who vouches for a bundle, from the command that signs it to the one that lets it land."""

import gzip
import os
import pty
import select
import shutil
import subprocess
import time
from collections.abc import Sequence
from pathlib import Path
from typing import NamedTuple

import pytest

pytest.importorskip("cryptography")
pytest.importorskip("nacl")
pytest.importorskip("fsspec")

from sgl_tune.ship.archive import opened
from sgl_tune.ship.manifest import BadBundle
from tests.sgl_tune.running import PROGRAM, ROOT, Ran, environment, run_here
from tests.sgl_tune.schemas import told
from tests.sgl_tune.ship.signing import make_keys
from tests.sgl_tune.stores.make import whole_root

SECONDS = 30.0
COSIGN = Path(__file__).with_name("cosign")


class Made(NamedTuple):
    code: Path
    tactics: Path
    key: Path
    public: Path
    other: Path


@pytest.fixture(scope="module")
def made(tmp_path_factory: pytest.TempPathFactory) -> Made:
    """Two bundles, both signed with `key`; `other` is the public key of somebody else."""
    folder = tmp_path_factory.mktemp("made")
    shutil.copytree(ROOT / "cache-examples" / "cache", folder / "caches")
    key, public = make_keys(folder)
    code, tactics = folder / "code.tar.gz", folder / "tactics.tar.gz"
    assert run_here("pack", folder / "caches", "-o", tactics, "--sign", key).code == 0
    whole_root(folder / "root")
    assert told("pack", folder / "root", "-o", code, "--sign", key)["signature"] == f"{code}.sig"
    return Made(code, tactics, key, public, make_keys(folder, "other")[1])


def _unsigned(bundle: Path, folder: Path) -> Path:
    return Path(shutil.copy(bundle, folder / bundle.name))


def _unpack(bundle: Path, folder: Path, *words: object) -> Ran:
    return run_here("unpack", bundle, "--cache-dir", folder / "new", *words)


def _landed(folder: Path) -> bool:
    """But for what the next pull would take up."""
    root = folder / "new"
    return root.exists() and any(not path.name.startswith(".sgl-tune-pulls") for path in root.iterdir())


def test_what_is_signed_by_whom_one_trusts_lands(made: Made, tmp_path: Path) -> None:
    landed = told("unpack", made.code, "--cache-dir", tmp_path / "new", "--trust", made.public)
    assert landed["signed_by"] == ["sign.pub"] and _landed(tmp_path)
    assert "signed by sign.pub" in _unpack(made.tactics, tmp_path, "--trust", made.public).out


@pytest.mark.parametrize("name", ["code", "tactics"])
def test_what_somebody_else_signed_does_not_land(name: str, made: Made, tmp_path: Path) -> None:
    ran = _unpack(getattr(made, name), tmp_path, "--trust", made.other)
    assert ran.code == 1 and "is signed, but not by other.pub" in ran.err and not _landed(tmp_path)
    ran = _unpack(_unsigned(getattr(made, name), tmp_path), tmp_path, "--trust", made.public)
    assert ran.code == 1 and "is not signed" in ran.err and not _landed(tmp_path)


def test_nothing_is_opened_before_its_signature_is_good(made: Made, tmp_path: Path) -> None:
    bundle = _unsigned(made.code, tmp_path)
    shutil.copy(f"{made.code}.sig", tmp_path)
    bundle.write_bytes(b"neither gzip nor zstd")
    assert _unpack(bundle, tmp_path, "--trust", made.public).ends(1, "is signed, but not by")
    assert "gzip" in _unpack(bundle, tmp_path).err


def test_what_changes_after_it_was_checked_does_not_land(made: Made, tmp_path: Path) -> None:
    bundle = _unsigned(made.tactics, tmp_path)
    as_good = gzip.compress(gzip.decompress(bundle.read_bytes()), compresslevel=1, mtime=0)

    def check(digest: str) -> None:
        bundle.write_bytes(as_good)

    told = "somebody wrote to it while it was read"
    with pytest.raises(BadBundle, match=told), opened(bundle, check) as found:
        for _, content in found.archive.each():
            for _ in content:
                pass
    with opened(bundle) as found:
        assert found.archive.manifest.caches, "it is as good a bundle as the first"


def test_a_cache_dir_that_is_a_file_is_refused_by_name(made: Made, tmp_path: Path) -> None:
    for words in (("unpack", made.tactics), ("pull", made.tactics.as_uri())):
        assert run_here(*words, "--cache-dir", made.public).ends(2, f"{made.public} is a file, not a folder")


def test_code_of_ones_own_lands_and_nobody_vouches_for_it(made: Made, tmp_path: Path) -> None:
    ran = _unpack(_unsigned(made.code, tmp_path), tmp_path)
    assert ran.code == 0 and "without a checked signature" in ran.out + ran.err


def test_code_that_is_pulled_wants_a_signature_or_a_word(made: Made, tmp_path: Path) -> None:
    store = tmp_path / "store"
    store.mkdir()
    url = f"{store.as_uri()}/code.tar.gz"
    pull = ("pull", url, "--cache-dir", tmp_path / "new")
    assert run_here("push", made.code, url).code == 0
    ran = run_here(*pull)
    assert ran.code == 2 and "add --trust KEY" in ran.err and not _landed(tmp_path)
    assert "no key was given to check its signature" in " ".join(ran.err.split())
    assert told(*pull, "--trust", made.public)["unpacked"]["signed_by"] == ["sign.pub"]
    shutil.rmtree(tmp_path / "new")
    (store / "code.tar.gz.sig").unlink()
    assert run_here(*pull).ends(2, "it is not signed") and not _landed(tmp_path)
    assert run_here(*pull, "--trust", made.public).code == 1 and not _landed(tmp_path)
    assert run_here(*pull, "--trust", made.public, "--allow-unsigned-code").ends(2, "contradict each other")
    ran = run_here(*pull, "--allow-unsigned-code")
    assert ran.code == 0 and "without a checked signature" in ran.out + ran.err and _landed(tmp_path)


def test_tactics_that_are_pulled_want_none(made: Made, tmp_path: Path) -> None:
    store = tmp_path / "store"
    store.mkdir()
    assert run_here("push", _unsigned(made.tactics, tmp_path), store.as_uri(), "--gpu", "h200").code == 0
    pull = ("pull", store.as_uri(), "--gpu", "h200", "--cache-dir", tmp_path / "new")
    assert run_here(*pull).ends(0, out="tactics alone") and _landed(tmp_path)
    assert run_here(*pull, "--trust", made.public).code == 1


def test_push_signs_what_was_not(made: Made, tmp_path: Path) -> None:
    store = tmp_path / "store"
    store.mkdir()
    bundle = _unsigned(made.code, tmp_path)
    assert run_here("push", bundle, store.as_uri(), "--sign", made.key).code == 0
    url = f"{store.as_uri()}/code.tar.gz"
    assert run_here("pull", url, "--cache-dir", tmp_path / "new", "--trust", made.public).code == 0


def _typed(words: Sequence[object], prompt: str, answer: str, code: int = 0) -> str:
    """What a terminal showed on which somebody answered when he was asked."""
    ours, theirs = pty.openpty()
    line = [*PROGRAM, *map(str, words)]
    streams = {"stdin": theirs, "stdout": theirs, "stderr": theirs}
    with subprocess.Popen(line, env=environment(), start_new_session=True, **streams) as child:
        os.close(theirs)
        seen, until = b"", time.monotonic() + SECONDS
        while select.select([ours], [], [], max(0, until - time.monotonic()))[0]:
            try:
                seen += os.read(ours, 65536)
            except OSError:  # Linux says EIO when the last process with the terminal has gone
                break
            if answer and prompt.encode() in seen:
                os.write(ours, answer.encode())
                answer = ""
        else:
            child.kill()
        os.close(ours)
    assert child.returncode == code, seen
    return seen.decode()


def test_a_password_comes_from_its_variable_or_from_the_terminal(tmp_path: Path) -> None:
    caches, key = ROOT / "cache-examples" / "cache", tmp_path / "cosign.key"
    key.touch(0o600)
    key.write_bytes((COSIGN / "legacy.key").read_bytes())
    words = ("pack", caches, "-o", tmp_path / "a.tar.gz", "--sign", key)
    assert "none was typed" in _typed(words, f"Password of {key}: ", "\x04", code=2)
    said = _typed(words, f"Password of {key}: ", "hello\n")
    assert "a.tar.gz.sig: its" in " ".join(said.split()) and "hello" not in said
    public = Path(shutil.copyfile(COSIGN / "legacy.pub", tmp_path / "cosign.pub"))
    public.chmod(0o644)
    assert _unpack(tmp_path / "a.tar.gz", tmp_path, "--trust", public).code == 0
    assert run_here("pack", caches, "-o", tmp_path / "a.tar.gz").ends(0, "a.tar.gz.sig was there before")
