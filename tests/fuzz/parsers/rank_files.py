"""The rank files of SGLang's and vLLM's caches: listed, compared and judged."""

from __future__ import annotations

import json
from pathlib import Path
from random import Random

from tests.fuzz.mutate import duplicated_key, mutated, of_bytes, of_json
from tests.fuzz.parser import Parser, command
from tests.sgl_tune.cache.caches import cache_folder
from tests.sgl_tune.cache.corpus import TARGET, build_corpus, moe_entries

_CORPUS = build_corpus(TARGET, moe_entries((1, 8192)))
_SEEDS = tuple(case.raw for case in _CORPUS.values() if len(case.raw) < 8000)
_GOOD = _CORPUS["good"].raw
_COMMANDS = (
    ("inspect", "--entries", "--format", "json"),
    ("inspect", "--entries", "--filter", "op~moe"),
    ("verify", "--format", "json"),
    ("verify", "--target", "env.json"),
    ("verify", "--moe-runner-backend", "flashinfer_cutlass", "--arch", "sm90", "--model", "Qwen3-30B-A3B"),
    ("inspect", "--format", "quiet", "--sort", "age"),
)


def _make(random: Random) -> tuple[bytes, int]:
    raw = mutated(_SEEDS, random, of_json, of_json, of_json, duplicated_key, of_bytes)
    return raw, random.randrange(len(_COMMANDS) + 1)


def _read(made: tuple[bytes, int], folder: Path) -> None:
    raw, which = made
    cache = cache_folder(folder / "cache")
    (cache / "rank_tp0_pp0_dp0.json").write_bytes(raw)
    (cache / "rank_tp1_pp0_dp0.json").write_bytes(_GOOD if len(raw) % 2 else raw)
    (folder / "env.json").write_text(json.dumps(TARGET))
    if which == len(_COMMANDS):
        command("diff", cache / "rank_tp0_pp0_dp0.json", cache / "rank_tp1_pp0_dp0.json", "--format", "json")
    else:
        command(*_COMMANDS[which], *(("cache",) if which < 4 or which > 4 else ("--cache-dir", "cache")))


PARSER = Parser(_make, _read)
