"""The frozen answers are unchanged: their form, their number, their digests."""

import re
from collections import Counter
from pathlib import Path

import pytest

from runtime.ghost.gpus import gpus
from tests.frozen.compare import FIELDS
from tests.frozen.questions import COMMANDS, MODELS, file_of, frozen, models_digest, releases

RELEASES = ("0.5.12.post1", "0.5.17", "0.5.20", "0.5.23")


def test_there_are_300_commands_of_three_seeds_and_four_releases() -> None:
    assert tuple(releases()) == RELEASES
    seeds = Counter(one.seed for release in RELEASES for one in frozen(release).questions)
    assert sorted(seeds.values()) == [100, 100, 100]
    assert {tuple(sorted(seeds))} == {frozen(release).seeds for release in RELEASES}


@pytest.mark.parametrize("release", RELEASES)
def test_the_questions_are_those_that_were_written(release: str) -> None:
    read = frozen(release)
    assert read.release == release
    assert read.text == file_of(release).read_text()
    assert read.models == models_digest()
    assert re.fullmatch("[0-9a-f]{64}", read.wheel_sha256) and release in read.wheel


@pytest.mark.parametrize("release", RELEASES)
def test_each_question_has_one_answer_with_every_field(release: str) -> None:
    models = MODELS.read_text()
    for one in frozen(release).questions:
        assert [one.answer, one.refused, one.unanswered].count(None) == 2, one.argv
        assert one.answer is None or one.answer.keys() == FIELDS, one.argv
        assert f'"{one.model}":' in models
        assert one.gpu.lower().replace(" ", "-") in gpus()


def test_another_answer_is_noticed(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    text = file_of("0.5.23").read_text().replace('"tunes":true', '"tunes":false', 1)
    assert text != file_of("0.5.23").read_text()
    (tmp_path / "0.5.23.jsonl").write_text(text)
    monkeypatch.setattr("tests.frozen.questions.COMMANDS", tmp_path)
    with pytest.raises(ValueError, match="than were frozen"):
        frozen("0.5.23")


def test_the_data_is_small() -> None:
    assert sum(file.stat().st_size for file in (MODELS, *COMMANDS.glob("*.jsonl"))) < 1_000_000
