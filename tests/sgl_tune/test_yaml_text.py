"""YAML whose aliases and merge keys stand for more than anybody wrote is refused before it is expanded."""

import time

import pytest
import yaml

from sgl_tune.deployment.manifest_yaml import read_yaml
from sgl_tune.errors import UsageError
from tests.sgl_tune.running import run


def _merges(levels: int, width: int) -> str:
    """Each mapping merges the one before it `width` times."""
    lines = ["a0: &a0 {command: [python, -m, sglang.launch_server]}"]
    lines += [f"a{n}: &a{n} {{<<: [{', '.join([f'*a{n - 1}'] * width)}]}}" for n in range(1, levels + 1)]
    return "\n".join(lines)


def _nested_merges(levels: int) -> str:
    """The same without a list: each mapping merges the one before it twice, by two merge keys."""
    lines = ["a0: &a0 {k: v}"]
    lines += [f"a{n}: &a{n} {{<<: *a{n - 1}, ? <<\n : *a{n - 1}}}" for n in range(1, levels + 1)]
    return "\n".join(lines)


HOSTILE = {
    "merge lists": _merges(13, 11),
    "merge keys twice": _nested_merges(30),
    "aliases": "a0: &a0 [x, x]\n" + "\n".join(f"a{n}: &a{n} [*a{n - 1}, *a{n - 1}]" for n in range(1, 30)),
    "a list in itself": "a: &a [*a]",
    "a mapping that merges itself": "a: &a {<<: *a}",
    "two that merge each other": "a: &a {b: &b {<<: *a}, <<: *b}",
    "a key in itself": "a: &a {? *a : 1}",
    "many documents": "\n---\n".join([_merges(3, 9)] * 40),
}


@pytest.mark.parametrize("name", HOSTILE)
def test_an_expansion_without_bounds_is_refused_before_it_happens(name: str) -> None:
    begun = time.process_time()
    with pytest.raises(UsageError, match=r"more than 40000 values"):
        read_yaml(HOSTILE[name], "it")
    assert time.process_time() - begun < 2


def test_a_manifest_of_a_kilobyte_ends_as_wrong_usage() -> None:
    text = HOSTILE["merge lists"]
    assert len(text) < 1100
    assert run("warm", "--dry-run", "--", text).ends(2, "more than 40000 values")


@pytest.mark.parametrize(
    "text",
    [
        "",
        "a: 1\n---\nb: [1, 2.5, null, true, 2026-11-29]\n---\n",
        "x: &x {env: {A: 1}, image: i}\ns: {<<: *x, image: j}\nt: {<<: [*x, {u: 1}]}",
        "&a [1, *b]".replace("*b", "&b {c: d}"),
        "- !!set {a, b}\n- !!omap [a: 1]\n- !!pairs [a: 1, a: 2]\n- !!binary aGVsbG8=",
        "=: 1",
    ],
)
def test_other_text_is_read_as_pyyaml_reads_it(text: str) -> None:
    assert read_yaml(text, "it") == list(yaml.safe_load_all(text))
