"""The pictures in docs: drawn of what a terminal showed, and nothing in them is fetched."""

import re
from xml.etree import ElementTree

import pytest

from benchmarks.pictures import PICTURES, drawn
from benchmarks.terminal import Frame, Screen, Style
from tests.sgl_tune.running import ROOT


@pytest.mark.parametrize(
    ("said", "shown"),
    [
        ("one\r\ntwo", ["one", "two"]),
        ("searching 1s\rsearching 2s", ["searching 2s"]),
        ("a long line\r\x1b[2Kshort", ["short"]),
        ("first\r\nsecond\r\n\x1b[2A\x1b[2Klast", ["last", "second"]),
        ("\x1b[1mbold\x1b[0m plain", ["bold plain"]),
        ("\x1b[?25l\x1b[32mgreen\x1b[0m\x1b[?25h", ["green"]),
    ],
)
def test_a_screen_shows_what_a_terminal_would(said: str, shown: list[str]) -> None:
    screen = Screen()
    screen.feed(said)
    assert ["".join(text for text, _ in row) for row in screen.rows()] == shown


def test_a_picture_holds_each_frame_and_nothing_from_elsewhere() -> None:
    frames = [Frame(at, ((("<&> ", Style("green")), (f"{at}", Style())),)) for at in (0.0, 1.0, 9.0)]
    svg = drawn(frames, moves=True)
    root = ElementTree.fromstring(svg)
    groups = root.findall("{*}g")
    assert ["".join(group.itertext()) for group in groups] == ["<&>0.0", "<&>1.0", "<&>9.0"]
    assert svg.count("@keyframes") == 3
    assert len(ElementTree.fromstring(drawn(frames, moves=False)).findall("{*}g")) == 1


def test_the_readme_shows_the_pictures_and_they_are_the_commands_named() -> None:
    readme = (ROOT / "README.md").read_text()
    for picture in PICTURES:
        assert f"(docs/pictures/{picture.name}.svg)" in readme
        svg = (ROOT / "docs/pictures" / f"{picture.name}.svg").read_text()
        said = " ".join("".join(ElementTree.fromstring(svg).itertext()).split())
        assert all(word in said for command in picture.commands for word in command.split())
        assert set(re.findall(r"https?://[^\"' )]+", svg)) == {"http://www.w3.org/2000/svg"}
