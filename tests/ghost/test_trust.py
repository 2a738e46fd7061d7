"""Files that another user may have written are not loaded."""

import os
from pathlib import Path

import pytest

from runtime.ghost.trust import Untrusted, objection, opened
from runtime.sglang.server_process import ServerProcess

NOBODY = 65534
as_root = pytest.mark.skipif(os.geteuid() != 0, reason="only root gives files away")


@pytest.fixture
def module(tmp_path: Path) -> Path:
    folder = tmp_path / "modules"
    folder.mkdir(mode=0o700)
    (folder / "one.so").write_bytes(b"code")
    return folder / "one.so"


def test_a_file_of_this_user_is_opened(module: Path) -> None:
    with opened(module) as descriptor:
        assert os.read(descriptor, 10) == b"code"
    assert objection(module) == ""


@pytest.mark.parametrize("mode", [0o620, 0o602, 0o666])
def test_a_file_that_others_may_write_is_refused(module: Path, mode: int) -> None:
    module.chmod(mode)
    with pytest.raises(Untrusted, match=r"others may write to .*one\.so"), opened(module):
        pass


@pytest.mark.parametrize("mode", [0o770, 0o777])
def test_a_folder_that_others_may_write_in_is_refused(module: Path, mode: int) -> None:
    module.parent.chmod(mode)
    assert "others may write in" in objection(module)


def test_a_folder_far_above_counts_too(module: Path) -> None:
    deep = module.parent / "a/b/c.so"
    deep.parent.mkdir(parents=True)
    deep.write_bytes(b"code")
    module.parent.chmod(0o777)
    assert f"others may write in {module.parent}" in objection(deep)


def test_a_sticky_folder_is_good_enough_for_what_is_ours(module: Path) -> None:
    module.parent.chmod(0o1777)
    assert objection(module) == ""


@as_root
def test_what_belongs_to_another_user_is_refused(module: Path) -> None:
    os.chown(module, NOBODY, NOBODY)
    assert f"belongs to user {NOBODY}" in objection(module)
    os.chown(module, 0, 0)
    os.chown(module.parent, NOBODY, NOBODY)
    assert f"{module.parent} belongs to user {NOBODY}" in objection(module)


@as_root
def test_a_link_that_another_user_made_is_refused_whatever_it_leads_to(module: Path) -> None:
    module.parent.chmod(0o1777)
    link = module.parent / "link.so"
    link.symlink_to(module)
    assert objection(link) == ""
    os.lchown(link, NOBODY, NOBODY)
    assert f"{link} belongs to user {NOBODY}" in objection(link)


def test_the_folders_that_a_link_leads_through_are_judged(module: Path, tmp_path: Path) -> None:
    loose = tmp_path / "loose"
    loose.mkdir()
    loose.chmod(0o777)
    (loose / "one.so").write_bytes(b"code")
    for target in (loose / "one.so", Path("../loose/one.so")):
        link = module.parent / "link.so"
        link.unlink(missing_ok=True)
        link.symlink_to(target)
        assert f"others may write in {loose}" in objection(link)


def test_a_link_on_the_way_may_lead_up_and_down_again(module: Path, tmp_path: Path) -> None:
    (tmp_path / "way").symlink_to("modules/../modules/.")
    assert objection(tmp_path / "way/one.so") == ""


def test_links_in_a_circle_end(tmp_path: Path) -> None:
    (tmp_path / "a").symlink_to("b")
    (tmp_path / "b").symlink_to("a")
    assert "too many links" in objection(tmp_path / "a")


def test_only_a_regular_file_is_opened_and_no_pipe_is_waited_for(tmp_path: Path) -> None:
    os.mkfifo(tmp_path / "pipe.so")
    assert "no regular file" in objection(tmp_path / "pipe.so")
    assert "no regular file" in objection(tmp_path)
    assert "no regular file" in objection(Path("/dev/null"))
    assert "cannot be opened" in objection(tmp_path / "nothing.so")


def test_no_descriptor_is_left_open(module: Path) -> None:
    before = len(list(Path("/proc/self/fd").iterdir()))
    for path in (module, module.parent, module.parent / "nothing", Path("/dev/null")):
        objection(path)
    assert len(list(Path("/proc/self/fd").iterdir())) == before


def test_a_cache_folder_of_a_group_gives_way_to_the_work_folder(tmp_path: Path) -> None:
    shared, work = tmp_path / "cache", tmp_path / "work"
    shared.mkdir()
    shared.chmod(0o770)
    assert ServerProcess._private(shared / "kernels", work / "kernels") == work / "kernels"
    shared.chmod(0o700)
    assert ServerProcess._private(shared / "kernels", work / "kernels") == shared / "kernels"
