"""A file that is written whole or not at all, beside whatever else is there."""

import os
from pathlib import Path

import pytest

from sgl_tune.errors import UsageError
from sgl_tune.writing import check_place, write_text, written
from tests.sgl_tune.cache.children import as_nobody, in_child


def test_what_fails_in_the_middle_leaves_the_old_file_and_nothing_else(tmp_path: Path) -> None:
    file = tmp_path / "page.html"
    file.write_text("old")
    with pytest.raises(ZeroDivisionError), written(file) as part:
        part.write(bytes(1 // 0))
    assert [one.name for one in tmp_path.iterdir()] == ["page.html"] and file.read_text() == "old"


def _part(folder: Path) -> Path:
    (part,) = folder.glob(".sgl-tune-*.part")
    return part


def test_a_link_that_takes_the_place_of_the_part_is_not_followed(tmp_path: Path) -> None:
    (tmp_path / "theirs").write_text("private")
    with pytest.raises(UsageError, match="is another file than was written"), written(tmp_path / "a") as file:
        part = _part(tmp_path)
        part.unlink()
        part.symlink_to(tmp_path / "theirs")
        file.write(b"mine")
    assert (tmp_path / "theirs").read_text() == "private"


def test_the_part_of_a_killed_writer_is_removed_by_the_next_one(tmp_path: Path) -> None:
    def die() -> None:
        with written(tmp_path / "a"):
            os._exit(9)

    in_child(die)
    dead = _part(tmp_path)
    assert [one.name for one in tmp_path.iterdir()] == [dead.name]
    write_text(tmp_path / "b", "mine")
    assert [one.name for one in tmp_path.iterdir()] == ["b"]


def test_the_part_of_a_writer_at_work_is_left_alone(tmp_path: Path) -> None:
    with written(tmp_path / "a") as file:
        assert in_child(lambda: write_text(tmp_path / "b", "theirs")) is None
        file.write(b"mine")
    assert {one.name: one.read_text() for one in tmp_path.iterdir()} == {"a": "mine", "b": "theirs"}


def test_the_rights_are_those_of_any_new_file(tmp_path: Path) -> None:
    mask = os.umask(0o027)
    try:
        write_text(tmp_path / "page.html", "mine")
    finally:
        os.umask(mask)
    assert (tmp_path / "page.html").stat().st_mode & 0o777 == 0o640


def test_a_folder_is_not_written_over(tmp_path: Path) -> None:
    with pytest.raises(UsageError, match="is no regular file"):
        write_text(tmp_path, "mine")


@pytest.mark.skipif(os.getuid() != 0, reason="only root becomes somebody else")
def test_where_nothing_may_be_written_is_said_before_the_work(tmp_path: Path) -> None:
    check_place(tmp_path / "page.html")
    with pytest.raises(UsageError, match=f"there is no folder {tmp_path}/new"):
        check_place(tmp_path / "new" / "page.html")

    def refused_to_a_stranger() -> bool:
        try:
            check_place(Path("/usr/share/page.html"))
        except UsageError as error:
            return "you may not write in /usr/share" in error.message
        return False

    assert as_nobody(tmp_path, refused_to_a_stranger)
