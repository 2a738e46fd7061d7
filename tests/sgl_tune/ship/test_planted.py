"""Root works in a folder that somebody else owns, and who owns it swaps what is there: nothing outside the
folder changes, and no file of root's is given away."""

import os
import time
from collections.abc import Callable, Iterator
from contextlib import nullcontext
from pathlib import Path

import pytest

from sgl_tune.cache.layouts.cache import LOCK
from sgl_tune.errors import SglTuneError
from sgl_tune.ship.manifest import BundleManifest
from sgl_tune.ship.unpack import How, unpack
from tests.sgl_tune.cache.children import hearing, in_child
from tests.sgl_tune.running import Ran, run, run_here
from tests.sgl_tune.ship.bundles import make_bundle
from tests.sgl_tune.stores import make

NOBODY = 65534
PULLS = f".sgl-tune-pulls-{os.geteuid()}"
TACTICS = "flashinfer/autotune/0.7.2/sm90/ad601cc9b3a885f2"
OFFER = "flashinfer-aot/flashinfer_jit_cache"
OLD = 10**9
needs_root = pytest.mark.skipif(os.getuid() != 0, reason="only root can give files away")


@pytest.fixture
def theirs(tmp_path: Path) -> Path:
    """A folder of somebody else's."""
    folder = tmp_path / "theirs"
    folder.mkdir()
    if os.getuid() == 0:
        os.chown(folder, NOBODY, NOBODY)
    return folder


@pytest.fixture
def secret(tmp_path: Path) -> Iterator[Path]:
    """A file of ours that nobody else may read, and that is as it was afterwards."""
    file = tmp_path / "secret"
    file.write_text("mine")
    file.chmod(0o600)
    yield file
    status = file.stat()
    assert (file.read_text(), status.st_mode & 0o777, status.st_uid) == ("mine", 0o600, os.geteuid())


Event = tuple[object, ...]


def _meanwhile(moment: str, swap: Callable[[Event], bool], *words: object) -> Ran:
    """The command runs, and right before each call of this kind somebody else may act. `swap` says whether he
    did: he does it once, and must have."""

    acted = [False]

    def hook(event: str, arguments: Event) -> None:
        if event == moment and not acted[0]:
            acted[0] = True  # what he does himself is no such call
            acted[0] = swap(arguments)

    def work() -> Ran:
        ran = run_here(*words)
        return Ran(ran.code if acted[0] else -1, ran.out, ran.err)

    return in_child(hearing(hook, work))


def _pull(tmp_path: Path, *more: object) -> tuple[object, ...]:
    place = tmp_path / "store"
    place.mkdir(exist_ok=True)
    make_bundle(place / "b.tar.gz", 2_000_000)
    return ("pull", f"file://{place}/b.tar.gz", *more)


@pytest.mark.parametrize("moment", ["os.chmod", "os.rename"])
def test_a_swapped_folder_takes_no_kept_file(moment: str, theirs: Path, secret: Path, tmp_path: Path) -> None:
    """When the bundle has arrived, its folder has been replaced by one with a link of the file's name."""

    def swap(arguments: Event) -> bool:
        part = next((theirs / PULLS).iterdir())
        (theirs / PULLS).rename(theirs / "away")
        (theirs / PULLS).mkdir(0o700)
        part.symlink_to(secret)
        return True

    output = theirs / "kept.tar.gz"
    assert _meanwhile(moment, swap, *_pull(tmp_path, "-o", output)).ends(0)
    assert output.read_bytes() == (tmp_path / "store/b.tar.gz").read_bytes()


def test_a_pull_deletes_nothing_behind_a_planted_link(theirs: Path, tmp_path: Path) -> None:
    kept = make.write(tmp_path / "elsewhere" / "mine.part", "mine")
    os.utime(kept, (OLD, OLD))
    (theirs / PULLS).symlink_to(kept.parent)
    for more in (("-o", theirs / "kept.tar.gz"), ("--cache-dir", theirs)):
        assert run_here(*_pull(tmp_path, *more)).ends(3, "is not a folder of this user's alone")
        assert kept.read_text() == "mine"


@needs_root
def test_a_pull_deletes_nothing_in_a_folder_that_somebody_else_made(theirs: Path, tmp_path: Path) -> None:
    kept = make.write(theirs / PULLS / "mine.part", "mine")
    os.utime(kept, (OLD, OLD))
    os.chown(theirs / PULLS, NOBODY, NOBODY)
    assert run_here(*_pull(tmp_path, "--cache-dir", theirs)).ends(3, "is not a folder of this user's alone")
    assert kept.read_text() == "mine"


@needs_root
@pytest.mark.parametrize(
    "place", [LOCK, f"{TACTICS}/{LOCK}", f"{TACTICS}/rank_tp0_pp7_dp0.json", f"{OFFER}/theirs"]
)
def test_unpack_gives_away_no_file_of_two_names(place: str, whole: Path, theirs: Path, secret: Path) -> None:
    (theirs / place).parent.mkdir(parents=True, exist_ok=True)
    (theirs / place).hardlink_to(secret)
    run("unpack", whole, "--cache-dir", theirs)
    assert secret.stat().st_uid == 0


@needs_root
@pytest.mark.parametrize("moment", ["os.chown", "os.chmod", "os.rename"])
def test_unpack_gives_away_no_file_moved_to_a_name_it_wrote(moment: str, whole: Path, theirs: Path) -> None:
    """Root has a file in the folder, and the folder's owner moves it to the name of a new rank file."""
    rank = theirs / TACTICS / "rank_tp0_pp0_dp0.json"
    mine = make.write(theirs / "mine", "mine")

    def swap(arguments: Event) -> bool:
        if rank.exists():
            mine.rename(rank)
        return rank.exists()

    _meanwhile(moment, swap, "unpack", whole, "--cache-dir", theirs)
    (there,) = (path for path in (mine, rank) if path.exists() and path.read_text() == "mine")
    assert there.stat().st_uid == 0


@needs_root
def test_unpack_gives_away_no_folder_that_is_moved_under_a_name_it_made(whole: Path, theirs: Path) -> None:
    mine = theirs / "mine"
    below = theirs / "flashinfer"
    make.write(mine / "file", "mine")

    def hook(event: str, arguments: tuple[object, ...]) -> None:
        """Between the making of a folder and its opening."""
        if event == "open" and arguments[0] == "flashinfer" and below.exists() and mine.exists():
            below.rename(theirs / "away")
            mine.rename(below)

    in_child(hearing(hook, lambda: run_here("unpack", whole, "--cache-dir", theirs)))
    assert not mine.exists() and (below / "file").read_text() == "mine"
    assert below.stat().st_uid == 0


@pytest.mark.parametrize("is_killed", [False, True])
def test_unpack_removes_no_folder_moved_to_its_own_name(is_killed: bool, whole: Path, theirs: Path) -> None:
    precious = make.write(theirs / "precious" / "file", "mine").parent

    def swap(folder: Path, manifest: BundleManifest) -> None:
        (staging,) = theirs.glob(".sgl-tune-" + "[0-9a-f]" * 16)
        staging.rename(theirs / "away")
        precious.rename(staging)
        if is_killed:
            os._exit(9)
        raise SglTuneError("enough")

    with nullcontext() if is_killed else pytest.raises(SglTuneError, match="enough"):
        in_child(lambda: unpack(whole, How(theirs, str(theirs)), lambda size: None, lambda text: None, swap))
    time.sleep(1)  # another process cleans up after a killed one
    assert [path.read_text() for path in theirs.glob("*/file")] == ["mine"]


@pytest.mark.parametrize("moment", ["open", "os.rename"])
def test_pack_writes_through_no_planted_link(moment: str, whole: Path, theirs: Path, secret: Path) -> None:
    """The link is made before the temporary file is opened, or before that file gets its name."""

    def swap(arguments: Event) -> bool:
        name = str(arguments[0])
        if not name.endswith(".part"):
            return False
        (theirs / "link").symlink_to(secret)
        (theirs / "link").rename(theirs / name)
        return True

    root = whole.parent / "root"
    ran = _meanwhile(moment, swap, "pack", root, "--store", "triton", "-o", theirs / "b.tar.gz")
    assert secret.read_text() == "mine"
    told = {"open": "File exists", "os.rename": "is another file than was written"}[moment]
    assert ran.code == 2 and told in ran.err, ran.err
