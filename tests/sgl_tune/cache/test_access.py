"""Modes, owners and groups, read for a user who is not the one that runs this."""

import os
from pathlib import Path

import pytest

from sgl_tune.errors import UsageError
from sgl_tune.verify.access import Access, User, find_user
from tests.sgl_tune.cache.caches import cache_folder, codes, rank_names, verdicts, verify_all, write_ranks
from tests.sgl_tune.cache.children import in_child

ME = os.geteuid()
STRANGER = User("stranger", 4_000_000)


def _make_open_tree(tmp_path: Path) -> Path:
    """pytest's own folders are private: one below /tmp-like parents that everybody may pass."""
    for folder in (tmp_path, *tmp_path.parents):
        if folder.stat().st_uid == ME and folder.stat().st_mode & 0o001 == 0:
            folder.chmod(folder.stat().st_mode | 0o011)
    return cache_folder(tmp_path)


@pytest.mark.parametrize(
    ("mode", "user", "may"),
    [
        (0o600, User("owner", ME or 1), True),
        (0o640, User("peer", 5000, frozenset({os.getegid()})), True),
        (0o604, User("other", 5000), True),
        (0o640, User("other", 5000), False),
        (0o004, User("peer", 5000, frozenset({os.getegid()})), False),
        (0o000, User("root", 0), True),
    ],
)
def test_the_first_class_that_fits_decides(mode: int, user: User, may: bool, tmp_path: Path) -> None:
    path = tmp_path / "file"
    path.write_bytes(b"")
    path.chmod(mode)
    status = path.stat()
    if user.name == "owner":
        user = User("owner", status.st_uid)
    assert user.may(status, 4) is may


def test_a_file_closed_to_the_servers_user_is_a_crash_and_one_open_to_all_a_hit(tmp_path: Path) -> None:
    folder = _make_open_tree(tmp_path)
    (path,) = write_ranks(folder, rank_names())
    path.chmod(0o600)
    report = verify_all(tmp_path, user=STRANGER, sglang="0.5.17")
    assert verdicts(report) == ["crash"]
    (found,) = report.files[0].findings
    assert found.code == "not-readable"
    assert "-rw-------" in found.message and "PermissionError" in found.message
    assert found.remedy == f"chmod -R a+rX {path.parent}"
    path.chmod(0o644)
    assert verdicts(verify_all(tmp_path, user=STRANGER, sglang="0.5.17")) == ["hit"]


def test_a_closed_parent_folder_is_named(tmp_path: Path) -> None:
    folder = _make_open_tree(tmp_path)
    write_ranks(folder, rank_names())
    closed = folder.parent.parent
    closed.chmod(0o700)
    report = verify_all(tmp_path, user=STRANGER)
    assert verdicts(report) == ["crash"]
    assert str(closed) in report.files[0].findings[0].message
    assert report.files[0].findings[0].remedy == f"chmod a+x {closed}"


@pytest.mark.skipif(ME != 0, reason="only root can become somebody else")
def test_a_folder_that_nobody_here_may_pass_is_named(tmp_path: Path) -> None:
    folder = _make_open_tree(tmp_path)
    (path,) = write_ranks(folder, rank_names())
    closed = folder.parent.parent
    closed.chmod(0o700)

    def ask() -> list[str | None]:
        os.setuid(STRANGER.uid)
        owner = Access(User("owner", 0))
        return [found.remedy for found in (*owner.reading(path), *owner.writing(folder))]

    assert in_child(ask) == [f"chmod a+x {closed}"] * 2


def test_one_unreadable_rank_costs_the_group(tmp_path: Path) -> None:
    folder = _make_open_tree(tmp_path)
    paths = write_ranks(folder, rank_names(tp=2))
    paths[0].chmod(0o644)
    paths[1].chmod(0o600)
    report = verify_all(tmp_path, user=STRANGER)
    assert verdicts(report) == ["deleted", "deleted"]
    assert {"ranks-differ", "not-readable"} <= codes(report)


def test_a_folder_closed_for_writing_stops_servers_that_always_save(tmp_path: Path) -> None:
    folder = _make_open_tree(tmp_path)
    (path,) = write_ranks(folder, rank_names())
    path.chmod(0o644)
    folder.chmod(0o755)
    report = verify_all(tmp_path, user=STRANGER, sglang="0.5.23")
    assert "not-writable" in codes(report) and not report.ok()


def test_a_link_is_followed_to_where_the_file_lies(tmp_path: Path) -> None:
    folder = _make_open_tree(tmp_path)
    store = tmp_path / "store"
    store.mkdir(mode=0o700)
    (store / "real").mkdir(mode=0o755)
    (folder / "link").symlink_to(store / "real")
    (found,) = Access(STRANGER).reading(folder / "link" / "rank_tp0_pp0_dp0.json")
    assert str(store) in found.message


def test_users_are_found_by_name_and_by_number() -> None:
    root = find_user("root")
    assert (root.uid, root.name) == (0, "root")
    assert find_user("0") == root
    nobody_here = find_user("3999999")
    assert (nobody_here.uid, nobody_here.groups) == (3999999, frozenset({3999999}))


@pytest.mark.parametrize("name", ["no-such-user", "", "-1", "9" * 40])
def test_an_unknown_user_is_a_usage_error(name: str) -> None:
    with pytest.raises(UsageError, match="--as-user"):
        find_user(name)
    with pytest.raises(UsageError, match="--owner"):
        find_user(name, "--owner")
