"""The oracle's own parts, as far as they need no wheel."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from tests.oracle.commands import Command, random_commands
from tests.oracle.compare import page, tally
from tests.oracle.draws import SLIPS
from tests.oracle.flags import module_text, news, row, wrapped
from tests.oracle.lines import random_lines
from tests.oracle.published import published, target_models, write_checkpoints
from tests.oracle.rare import FLAGS, rare_commands
from tests.oracle.record import read, write
from tests.oracle.rule_changes import rule_changes

from runtime.server.flags import flags_of  # isort: skip

ONE = Command(0, "0.5.23", "H200", "a/b", ("--model-path", "models/a/b"))
SERVER = {"tunes": True, "mem_fraction_static": 0.88, "draft": None}


def kinds(ours: dict[str, Any], theirs: dict[str, Any]) -> list[str]:
    return [kind for kind, examples in tally([(ONE, ours, theirs)]).apart.items() if examples]


def test_a_seed_gives_the_same_commands_and_another_others() -> None:
    asked = [random_commands(seed, 50, ["0.5.12", "0.5.23"], ["H200", "B200"]) for seed in (1, 1, 2)]
    assert asked[0] == asked[1] != asked[2]


def test_commands_only_use_flags_that_their_release_has() -> None:
    for command in random_commands(3, 200, ["0.5.12", "0.5.20", "0.5.23"], ["H100"]):
        known = flags_of(command.release).by_name
        flags = {word for word in command.argv if word.startswith("--")}
        assert flags - set(known) <= set(SLIPS), command


def test_rare_flags_are_spelled_as_their_release_has_them() -> None:
    asked = rare_commands(5, 200, ["0.5.12", "0.5.23"], ["B200"])
    assert asked == rare_commands(5, 200, ["0.5.12", "0.5.23"], ["B200"])
    used = [{word for word in one.argv if word.startswith("--")} for one in asked]
    assert all(flags <= set(flags_of(one.release).by_name) for one, flags in zip(asked, used, strict=True))
    assert len(set.union(*used) & set(FLAGS)) > 0.9 * len(FLAGS)


def test_every_model_is_asked_for() -> None:
    asked = {command.model for command in random_commands(4, len(published()), ["0.5.23"], ["B200"])}
    assert asked == set(target_models()) < set(published())


def test_half_of_the_random_lines_hold_a_mistake_or_an_oddity() -> None:
    lines = random_lines(flags_of("0.5.17"), 1, 100)
    assert len(lines) == 100 and all("org/model" in line for line in lines)


def test_checkpoints_are_written_as_they_are_published(tmp_path: Path) -> None:
    write_checkpoints(tmp_path)
    written = sorted(path.parent for path in tmp_path.glob("models/*/*/config.json"))
    assert written == sorted(tmp_path / one.path for one in published().values())


def test_fields_that_differ_and_refusals_are_kinds_of_their_own() -> None:
    assert kinds({"server": SERVER}, {"server": SERVER}) == []
    assert kinds({"server": SERVER}, {"server": SERVER | {"tunes": False}}) == ["tunes"]
    assert kinds({"server": SERVER}, {"server": SERVER | {"mem_fraction_static": 0.879}}) != []
    assert kinds({"refused": "x"}, {"server": SERVER}) == ["refused here, started there"]
    assert kinds({"server": SERVER}, {"refused": "x"}) == ["refused there, planned here"]
    assert kinds({"refused": "x"}, {"refused": "y"}) == []


def test_what_the_oracle_could_not_ask_is_no_agreement() -> None:
    found = tally([(ONE, {"server": SERVER}, {"failed": "ImportError"})])
    assert found.both_answer == 0 and "could not ask: 1" in "\n".join(page(found))


def test_recorded_answers_are_read_as_they_were_written(tmp_path: Path) -> None:
    pairs = [(ONE, {"server": SERVER}), (ONE, {"refused": "x"})]
    write(tmp_path / "kept.jsonl.gz", [*pairs, (ONE, {"failed": "x"})])
    assert [answer for _, answer in read(tmp_path / "kept.jsonl.gz")] == [answer for _, answer in pairs]


def test_a_generated_table_reads_back_as_its_rows_and_keeps_to_the_width() -> None:
    action = {
        "names": ["--backend", "--b"], "dest": "backend_name", "action": "StoreAction", "nargs": None,
        "type": "str", "choices": [f"choice-{i}" for i in range(60)], "default": "choice-1",
        "const": None, "required": False, "instead": None, "refuses": None,
    }  # fmt: skip
    said = {
        "actions": [action], "renamed": {"backend_name": "backend"}, "fields": {"hidden": [1]},
        "graph_keys": {}, "serve_takes_model": True,
        "config_dicts_are_json": True, "config_keys_are_names": False,
    }  # fmt: skip
    text = module_text("9.9.9", said)
    module: dict[str, Any] = {}
    exec(text, module)
    assert module["FLAGS"] == (row(action, said["renamed"]),)
    assert module["ONLY_FIELDS"] == {"hidden": [1]}
    assert max(map(len, text.splitlines())) <= 110


def test_long_text_breaks_inside_a_string_without_changing_it() -> None:
    value = ("it's " * 40, {"key": "a b " * 40}, 'it\'s a "b" ' * 40)
    assert eval(wrapped(repr(value))) == value


def test_changes_of_the_rules_name_the_file_and_the_lines(tmp_path: Path) -> None:
    for wheel, text in (("old", "a = 1\n"), ("new", "a = 2\n")):
        folder = tmp_path / wheel / "sglang/srt/arg_groups/fields"
        folder.mkdir(parents=True)
        (folder / "moe.py").write_text(text)
        (folder / "same.py").write_text("")
    (tmp_path / "new/sglang/srt/environ.py").write_text("new = True\n")
    changes = rule_changes(tmp_path / "old", tmp_path / "new")
    assert list(changes) == ["arg_groups/fields/moe.py", "environ.py"]
    assert "-a = 1\n+a = 2\n" in changes["arg_groups/fields/moe.py"]


def test_news_of_a_command_line_are_what_came_went_and_changed() -> None:
    said = list(news(flags_of("0.5.19"), flags_of("0.5.20")))
    assert [line.split(":")[0] for line in said][:3] == ["new flags", "gone", "other defaults"]
    assert "--cuda-graph-max-bs" in said[1].split()
