"""A file that is written whole or not at all, beside whatever else is there."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from sgl_tune.errors import UsageError
from sgl_tune.memory.files import write_text, written


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
