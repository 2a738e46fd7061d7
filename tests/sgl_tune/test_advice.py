"""What a dry run advises is followed as a user would follow it: it ends in a plan that `verify` accepts.

Every checkpoint, published or made up of an architecture, on every GPU under four releases is 21,360 servers,
each asked one of many ways: a sample by default, SGL_TUNE_ADVICE=5000 of them, all, or those of a published
checkpoint.
"""

from __future__ import annotations

import json
import os
import random
import re
from dataclasses import dataclass, replace
from itertools import product
from pathlib import Path
from typing import Any

import pytest

from runtime.server.flags import flags_of, parse
from runtime.server.gpus import GPUS
from sgl_tune.cache.record import serialise
from tests.oracle.published import MADE_UP as MADE_UP_NAMES
from tests.oracle.published import published, write_checkpoints
from tests.sgl_tune.cache.corpus import TARGET
from tests.sgl_tune.running import Ran, run_here

RELEASES = ("0.5.12", "0.5.17", "0.5.21", "0.5.23")
SAMPLE = os.environ.get("SGL_TUNE_ADVICE", "75")
MADE_UP_SHARE = 0.2  # of a sample: most of these are of families that nobody here plans
ADVICE = re.compile(
    r"; (?:without (?P<without>--\S+(?: --\S+)*))?(?: and )?(?:with (?P<with>.+?))? it (?P<then>tunes \d.*)$"
)
# What may be asked beside the model, so that a server tunes nothing or what nobody can plan.
ASKED = (
    (),
    ("--tp-size", "8"),
    ("--tp-size", "8", "--ep-size", "8"),
    ("--tp-size", "8", "--ep-size", "2"),
    ("--disable-flashinfer-autotune",),
    ("--moe-runner-backend", "flashinfer_cutlass", "--tp-size", "4"),
    ("--moe-runner-backend", "flashinfer_trtllm", "--tp-size", "4"),
    ("--moe-runner-backend", "triton", "--disable-flashinfer-autotune"),
    ("--enable-deterministic-inference", "--tp-size", "2"),
    ("--speculative-algorithm", "EAGLE", "--tp-size", "8"),
    # what some release, GPU or checkpoint refuses
    ("--moe-runner-backend", "flashinfer_cutlass", "--tp-size", "8", "--ep-size", "2"),
    ("--moe-runner-backend", "flashinfer_cutedsl", "--quantization", "fp8"),
    ("--moe-a2a-backend", "flashinfer", "--tp-size", "8"),
    ("--moe-a2a-backend", "flashinfer", "--tp-size", "8", "--dp-size", "8", "--enable-dp-attention"),
    ("--quantization", "nvfp4_online"),
    ("--attention-backend", "trtllm_mha", "--kv-cache-dtype", "fp8_e4m3"),
    ("--attention-backend", "trtllm_mla", "--kv-cache-dtype", "fp8_e5m2"),
    ("--enable-deterministic-inference", "--attention-backend", "trtllm_mla"),
    ("--speculative-algorithm", "NGRAM", "--tp-size", "2", "--dp-size", "2", "--enable-dp-attention"),
)
WAY_OUT = re.compile(
    r"^  fix: (?:leave out (?P<out>--\S+(?: --\S+)*))?(?: and )?(?P<add>--.+?)?"
    r"(?P<as_command>, in a server command after --)?$",
    re.MULTILINE,
)
BY_COMMAND_ALONE = ("--enable-deterministic-inference",)


@dataclass(frozen=True)
class Case:
    model: str
    gpu: str
    release: str
    asked: tuple[str, ...]
    as_command: bool

    def words(self, verb: str, flags: tuple[str, ...], *more: object) -> tuple[object, ...]:
        target = ("--gpu", self.gpu, "--sglang-version", self.release)
        server = ("--model-path", self.model, *flags)
        command = ("--", "python", "-m", "sglang.launch_server") if self.as_command else ()
        return (*verb.split(), *target, *more, *command, *server)


def _cases() -> list[Case]:
    chance = random.Random(5)
    everything = list(product(published().values(), [gpu.name for gpu in GPUS], RELEASES))
    own = [one for one in everything if not one[0].name.startswith(MADE_UP_NAMES)]
    if SAMPLE == "published":
        everything = own
    elif SAMPLE != "all":
        rest = [one for one in everything if one[0].name.startswith(MADE_UP_NAMES)]
        most = int(int(SAMPLE) * MADE_UP_SHARE)
        everything = chance.choices(own, k=int(SAMPLE) - most) + chance.choices(rest, k=most)
    cases = []
    for checkpoint, gpu, release in everything:
        asked = chance.choice(ASKED)
        alone = any(flag in BY_COMMAND_ALONE for flag in asked)
        cases.append(Case(checkpoint.path, gpu, release, asked, alone or chance.random() < 0.5))
    return cases


@pytest.fixture(scope="module")
def checkpoints(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("checkpoints")
    write_checkpoints(folder)
    return folder


def _followed(case: Case, said: re.Match[str]) -> tuple[str, ...]:
    """Takes out the flags that are to be left out, and adds the others at the end."""
    kept = _without(case.asked, said["without"] or "")
    added = (said["with"] or "").split()
    parse(flags_of(case.release), ["--model-path", "m", *kept, *added])  # in the release's own spelling
    return (*kept, *added)


def _without(asked: tuple[str, ...], names: str) -> list[str]:
    """With what stands behind a flag as its value."""
    kept = list(asked)
    for name in names.split():
        at = kept.index(name)
        takes_value = at + 1 < len(kept) and not kept[at + 1].startswith("--")
        del kept[at : at + 1 + takes_value]
    return kept


def _verified(case: Case, flags: tuple[str, ...], plan: dict[str, Any], folder: Path) -> Ran:
    """The planned files as a server finds them, and what it makes of them."""
    for cache in filter(None, (plan, plan.get("draft"))):
        entries = {key: [op["runner"], 1, op["policy"]] for op in cache["ops"] for key in op["keys"]}
        version = cache["files"][0].split("/")[2] if cache["files"] else None
        metadata = {**TARGET, "flashinfer_version": version, "gpu": f"NVIDIA {case.gpu}"}
        for path in cache["files"]:
            (folder / path).parent.mkdir(parents=True, exist_ok=True)
            (folder / path).write_bytes(serialise(metadata, entries))
    return run_here(*case.words("verify", flags, "--cache-dir", folder, "--format", "json"))


def _check_plan(case: Case, flags: tuple[str, ...], then: str, folder: Path) -> None:
    plan = json.loads(run_here(*case.words("warm --dry-run", flags, "--format", "json")).out)
    assert plan["verdict"]["says"].startswith(then) and plan["verdict"]["tunes"] == "planned"
    ran = _verified(case, flags, plan, folder)
    report = json.loads(ran.out)
    assert ran.code == 0 and {file["verdict"] for file in report["files"]} <= {"hit", "partial"}, ran.out
    assert report["verdict"].startswith("good: the next start loads ")


def _check(case: Case, folder: Path) -> str:
    ran = run_here(*case.words("warm --dry-run", case.asked))
    if ran.code == 2:
        assert ran.out == "" and ran.err.startswith("error: ")
        return _check_refusal(case, ran.err, folder)
    first = ran.out.splitlines()[0]
    said = ADVICE.search(first)
    kind = "nothing" if first.startswith("tunes nothing: ") else "planned" if ran.code == 0 else "unplanned"
    dies = first.startswith("tunes nothing: this server does not start: ")
    assert ran.code == (kind == "unplanned" or dies)
    assert ("which cannot be planned: " in first) == (kind == "unplanned")
    untuned = "; no warm can tune them here: " in first
    if kind == "planned":
        assert said is None or untuned
        _check_plan(case, case.asked, first.removesuffix(said[0]) if said else first, folder)
    if said is None:
        return kind + ", by its own start" * untuned
    followed = _followed(case, said)
    after = run_here(*case.words("warm --dry-run", followed))
    assert (after.code, after.out.splitlines()[0]) == (0, said["then"])
    _check_plan(case, followed, said["then"], folder)
    return f"{kind}, advised"


def _check_refusal(case: Case, said: str, folder: Path) -> str:
    """The change of arguments that is advised leads to no other refusal, and what is said then holds."""
    way = WAY_OUT.search(said)
    if way is None or not (way["out"] or way["add"]):
        return "refused"
    kept = _without(case.asked, way["out"] or "")
    asked = (*kept, *(way["add"] or "").split())
    as_command = case.as_command or way["as_command"] is not None
    after = _check(replace(case, asked=asked, as_command=as_command), folder)
    assert not after.startswith("refused"), said
    return f"refused, then {after}"


def test_what_is_advised_ends_in_a_plan_that_verify_accepts(
    checkpoints: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(checkpoints)
    seen: dict[str, int] = {}
    failed: list[str] = []
    for number, case in enumerate(_cases()):
        try:
            outcome = _check(case, tmp_path / str(number))
        except AssertionError as error:
            failed.append(f"{case}: {error}")
            continue
        seen[outcome] = seen.get(outcome, 0) + 1
    print(seen)
    assert failed == [], "\n".join(failed[:20])
    assert seen.get("nothing, advised", 0) and seen.get("planned", 0)
