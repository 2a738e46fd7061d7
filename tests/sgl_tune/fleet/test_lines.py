"""Lines that anybody may have written: each is judged or named, and none costs another."""

import json
import os
import re
import resource
import sys
import time
from pathlib import Path
from typing import Any
from xml.etree import ElementTree

import pytest

from runtime.record.checked import WrongMember
from sgl_tune.fleet.node import parse_node
from tests.sgl_tune.fleet.nodes import WORDS, fleet_file, judged, node, warmed
from tests.sgl_tune.running import run, run_here
from tests.sgl_tune.schemas import schema_faults

HOSTILE = 'a"} 1\nsgl_tune_fleet_nodes{state="good"} 9 \\ \x1b[2J | `x` <b>&amp;\ud800'


@pytest.fixture(scope="module")
def good(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Any]:
    folder = tmp_path_factory.mktemp("caches")
    warmed(folder)
    return node(folder)


def _file(path: Path, *lines: bytes | dict[str, Any]) -> Path:
    raw = [line if isinstance(line, bytes) else json.dumps(line).encode() + b"\n" for line in lines]
    path.write_bytes(b"".join(raw))
    return path


BOTTOMLESS = "nested" if sys.version_info >= (3, 13) else "is not JSON"
BAD = {
    "cut off": (b'{"schema_version": 1, "metada', "it is cut off"),
    "no JSON": (b"{]\n", "is not JSON: Expecting property name"),
    "indented": (b"{\n", "one object a line is needed"),
    "no object": (b"[1]\n", "holds a list, not a JSON object"),
    "no text": (b"\xff\xfe{\0\n", "is not JSON"),
    "bottomless": (b'{"a":' * 5000 + b"1" + b"}" * 5000 + b"\n", BOTTOMLESS),
    "deep": (b'{"schema_version":1,"metadata":' + b"[" * 99 + b"]" * 99 + b"}\n", "nested more than 60 deep"),
    "a number of 5,000 digits": (b'{"schema_version":' + b"1" * 5000 + b"}\n", "is not JSON"),
    "another version": (b'{"schema_version": 2, "tool": "9.9"}\n', "schema_version is 2, and 1 is read here"),
    "another answer": (b'{"schema_version": 1, "caches": []}\n', "it has no `metadata`"),
    "too long": (b" " * (9 << 20) + b"\n", "longer than"),
}  # fmt: skip


@pytest.mark.parametrize("name", BAD)
def test_a_line_that_is_no_node_is_named(name: str, good: dict[str, Any], tmp_path: Path) -> None:
    raw, why = BAD[name]
    ran, told = judged(_file(tmp_path / "f.jsonl", good, raw if name == "cut off" else raw + b"\n"))
    assert ran.code == 1 and told["states"]["good"] == 1 and "1 line could not be read" in told["verdict"]
    assert [line["line"] for line in told["lines"]] == [2] and why in told["lines"][0]["problem"]
    alone = run_here("verify", "--fleet", _file(tmp_path / "f.jsonl", raw), *WORDS)
    assert alone.code == 2 and "has no node: line 1" in alone.err


@pytest.mark.parametrize(
    "change",
    [
        {"name": 7}, {"name": ""}, {"name": "n" * 300}, {"metadata": []}, {"metadata": {"gpu": None}},
        {"gpus": [{"name": "x"}]}, {"caches": {}}, {"caches": [{"path": 1}]}, {"stores": [{"found": "many"}]},
        {"caches": [{"path": "p", "contents": [{"files": [], "alone": "fine"}]}]}, {"unseen": "all"},
    ],
)  # fmt: skip
def test_a_member_of_another_kind_is_named(change: dict[str, Any], good: dict[str, Any]) -> None:
    with pytest.raises(WrongMember, match=re.escape(next(iter(change)))):
        parse_node(json.dumps({**good, **change}).encode() + b"\n")


@pytest.mark.parametrize(
    "change",
    [
        {"sglang": "../../x"}, {"arch": "sm90/../x"}, {"arch": "cpu"}, {"gpus": []},
        {"metadata": {"flashinfer_version": "../../etc"}}, {"metadata": {}}, {"sglang": "9" * 4000},
        {"gpus": [{"name": "\x1b[2J", "arch": "sm999", "mib": -(1 << 50), "uuid": ""}]},
        {"gpus": [{"name": "NVIDIA H200", "arch": "sm90", "mib": 0, "uuid": "../.."}]},
    ],
)  # fmt: skip
def test_odd_ones_are_judged_or_named(change: dict[str, Any], good: dict[str, Any], tmp_path: Path) -> None:
    ran, told = judged(_file(tmp_path / "f.jsonl", {**good, "name": "b"}, {**good, **change}))
    assert ran.code in (0, 1) and told["nodes"] == 2 and told["states"]["good"] >= 1, ran.err


def test_an_older_env_is_no_good_node(good: dict[str, Any], tmp_path: Path) -> None:
    old = {name: good[name] for name in good if name not in ("caches", "stores", "cache_dir", "name")}
    ran, told = judged(_file(tmp_path / "f.jsonl", good, old))
    assert ran.code == 1 and told["states"]["unknown"] == 1
    assert told["rows"][0]["nodes"] == ["line 2"] and told["rows"][0]["reasons"][0]["code"] == "older-env"


def test_later_lines_count_and_other_machines_of_a_name_do(good: dict[str, Any], tmp_path: Path) -> None:
    empty = {**good, "caches": []}
    other = {**good, "gpus": [{**gpu, "uuid": f"other-{gpu['uuid']}"} for gpu in good["gpus"]]}
    ran, told = judged(_file(tmp_path / "f.jsonl", empty, good))
    assert (ran.code, told["nodes"]) == (0, 1)
    assert told["notes"] == ["line 2: a again, after line 1: this one counts"]
    ran, told = judged(_file(tmp_path / "f.jsonl", empty, other))
    nodes = {node for row in told["rows"] for node in row["nodes"]}
    assert told["nodes"] == 2 and nodes == {"a (line 1)", "a (line 2)"}


@pytest.mark.parametrize("kind", ["folder", "pipe", "missing", "empty"])
def test_what_is_no_file_of_lines_is_refused(kind: str, tmp_path: Path) -> None:
    path = tmp_path / "f.jsonl"
    makes = {
        "folder": path.mkdir,
        "pipe": lambda: os.mkfifo(path),
        "missing": lambda: None,
        "empty": path.touch,
    }
    makes[kind]()
    ran = run_here("verify", "--fleet", path, *WORDS)
    assert ran.code == 2 and "bug" not in ran.err


def test_hostile_names_stay_labels_and_text(good: dict[str, Any], tmp_path: Path) -> None:
    parser = pytest.importorskip("prometheus_client.parser")
    bad = {**good, "name": HOSTILE, "caches": [], "gpus": [{**good["gpus"][0], "name": HOSTILE}]}
    path = _file(tmp_path / "f.jsonl", bad, good)
    said = {
        form: run("verify", "--fleet", path, *WORDS, "--format", form) for form in ("junit", "prometheus")
    }
    others = ("human", "markdown", "quiet")
    said |= {form: run("verify", "--fleet", path, *WORDS, "--format", form) for form in others}
    assert {ran.code for ran in said.values()} == {1}
    assert not any(letter in ran.out for ran in said.values() for letter in "\x1b\r")
    families = {one.name: one for one in parser.text_string_to_metric_families(said["prometheus"].out)}
    counted = {sample.labels["state"]: sample.value for sample in families["sgl_tune_fleet_nodes"].samples}
    assert counted == {"fails": 0, "tunes": 1, "compiles": 0, "unknown": 0, "good": 1}
    assert all(family.documentation and family.type == "gauge" for family in families.values())
    starts = {
        sample.labels["node"]: sample.labels["state"]
        for sample in families["sgl_tune_fleet_next_start"].samples
    }
    assert starts.pop("a") == "good" and list(starts.values()) == ["tunes"] and "\\n" in next(iter(starts))
    suite = ElementTree.fromstring(said["junit"].out.split("\n", 1)[1])[0]
    assert (suite.get("tests"), suite.get("failures"), suite.get("errors")) == ("2", "1", "0")
    assert len(suite.findall("testcase/failure")) == 1
    assert "\\| \\`x\\` \\<b\\>" in said["markdown"].out


def test_what_is_printed_is_what_the_schema_says(good: dict[str, Any], tmp_path: Path) -> None:
    path = _file(tmp_path / "f.jsonl", good, {**good, "name": "b", "caches": []}, b"{}\n")
    assert schema_faults("verify-fleet", judged(path)[1]) == []
    assert schema_faults("env", good) == []


def test_what_does_not_go_with_a_fleet_is_refused(good: dict[str, Any], tmp_path: Path) -> None:
    path = _file(tmp_path / "f.jsonl", good)
    for words in (("--store", "all"), ("--at", "/x"), ("--as-user", "root"), ("--replay",), (tmp_path,)):
        assert run_here("verify", "--fleet", path, *WORDS, *words).code == 2, words
    assert run_here("verify", "--fleet", path, *WORDS, "--format", "github").code == 2
    assert run("verify", "--fleet", path, cwd=tmp_path).code == 2
    for words in (("--cold-start", path), ("--format", "junit"), ("--format", "prometheus")):
        assert run_here("verify", tmp_path, *words).code == 2, words
    for text in ("[]", "{}", '{"phases": [1]}', '{"phases": [{"store": "triton", "saves_seconds": "9"}]}'):
        (tmp_path / "cold.json").write_text(text)
        assert run_here("verify", "--fleet", path, *WORDS, "--cold-start", tmp_path / "cold.json").code == 2


def test_a_thousand_nodes_take_seconds_and_little_memory(good: dict[str, Any], tmp_path: Path) -> None:
    names = [f"gpu-{number:04d}" for number in range(1000)]
    gpus = [[{**gpu, "uuid": f"{name}-{place}"} for place, gpu in enumerate(good["gpus"])] for name in names]
    store = {"store": "triton", "path": "/cache/triton", "found": 512, "names": "0123456789ab" * 512}
    padded = {**good, "caches": good["caches"] * 16, "stores": [store] * 4}
    path = fleet_file(
        tmp_path / "f.jsonl",
        *({**padded, "name": name, "gpus": mine} for name, mine in zip(names, gpus, strict=True)),
    )
    assert path.stat().st_size > 30e6
    before = resource.getrusage(resource.RUSAGE_CHILDREN).ru_utime
    began = time.monotonic()
    ran = run("verify", "--fleet", path, *WORDS, "--format", "json")
    assert ran.code == 0 and json.loads(ran.out)["nodes"] == 1000
    assert resource.getrusage(resource.RUSAGE_CHILDREN).ru_utime - before < 5
    assert time.monotonic() - began < 60


def test_numbers_that_cannot_be_are_named(good: dict[str, Any]) -> None:
    with pytest.raises(WrongMember, match="less than none"):
        parse_node(json.dumps({**good, "stores": [{"store": "triton", "path": "p", "found": -1}]}).encode())


def test_signatures_of_nobodys_making_are_unequal_ranks(good: dict[str, Any], tmp_path: Path) -> None:
    (cache,) = good["caches"]
    (content,) = cache["contents"]
    first, second = content["files"]
    odd = [{**content, "files": [first], "signature": ""}, {"files": [second], "alone": "crash"}]
    ran, told = judged(_file(tmp_path / "f.jsonl", {**good, "caches": [{**cache, "contents": odd}]}))
    assert ran.code == 1 and told["rows"][0]["reasons"][0]["code"] == "ranks-differ"


def test_an_env_of_another_image_is_not_judged(good: dict[str, Any], tmp_path: Path) -> None:
    command = (
        "docker run lmsysorg/sglang:v0.5.23 python -m sglang.launch_server --model-path Qwen/Qwen3-30B-A3B"
    )
    path = _file(tmp_path / "f.jsonl", {**good, "sglang": "0.5.22"})
    told = json.loads(run_here("verify", "--fleet", path, "--format", "json", "--", command).out)
    (reason,) = told["rows"][0]["reasons"]
    assert reason["message"] == "its env is of SGLang 0.5.22, and the server's image of 0.5.23"
