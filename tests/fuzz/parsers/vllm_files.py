"""vLLM's files, a rank each: listed, judged and exported; and rank files of SGLang's, exported for vLLM."""

from __future__ import annotations

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
    ("inspect", "vllm", "--entries", "--format", "json"),
    ("verify", "vllm", "--format", "json"),
    ("export", "vllm/autotune_configs_dp0_rank0.json", "--to", "vllm", "--tp", "2", "-o", "out"),
    ("export", "cache", "--to", "vllm", "--tp", "2", "-o", "vllm"),
)


def _make(random: Random) -> tuple[bytes, int]:
    raw = mutated(_SEEDS, random, of_json, of_json, of_json, duplicated_key, of_bytes)
    return raw, random.randrange(len(_COMMANDS))


def _read(made: tuple[bytes, int], folder: Path) -> None:
    raw, which = made
    (folder / "vllm").mkdir()
    (folder / "vllm" / "autotune_configs_dp0_rank0.json").write_bytes(raw)
    (folder / "vllm" / "autotune_configs_dp0_rank1.json").write_bytes(_GOOD if len(raw) % 2 else raw)
    (cache_folder(folder / "cache") / "rank_tp0_pp0_dp0.json").write_bytes(raw)
    command(*_COMMANDS[which])


PARSER = Parser(_make, _read)
