"""A file that is written whole or not at all, beside whatever else is there."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from sgl_tune.errors import UsageError
from sgl_tune.writing import check_place, write_text, written
from tests.sgl_tune.cache.children import in_child


def test_half_a_character_is_written_as_its_escape(tmp_path: Path) -> None:
    write_text(tmp_path / "page.html", "a title: \udcff")
    assert (tmp_path / "page.html").read_text() == "a title: \\udcff"


def test_what_fails_in_the_middle_leaves_the_old_file_and_nothing_else(tmp_path: Path) -> None:
    file = tmp_path / "page.html"
    file.write_text("old")
    with pytest.raises(ZeroDivisionError), written(file) as part:
        part.write_text(str(1 / 0))
    assert [one.name for one in tmp_path.iterdir()] == ["page.html"] and file.read_text() == "old"


def test_a_link_with_the_name_of_the_part_is_not_followed(tmp_path: Path) -> None:
    (tmp_path / "theirs").write_text("private")
    (tmp_path / "page.html.part").symlink_to(tmp_path / "theirs")
    write_text(tmp_path / "page.html", "mine")
    assert (tmp_path / "theirs").read_text() == "private"


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
    check_place(tmp_path / "new" / "page.html")

    def refused_to_a_stranger() -> bool:
        os.setuid(65534)
        try:
            check_place(Path("/usr/share/page.html"))
        except UsageError as error:
            return "this user may not write in /usr/share" in error.message
        return False

    assert in_child(refused_to_a_stranger)
