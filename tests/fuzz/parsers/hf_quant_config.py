"""ModelOpt's hf_quant_config.json beside a config.json that is fine."""

from __future__ import annotations

from pathlib import Path
from random import Random

from tests.fuzz.mutate import duplicated_key, mutated, of_bytes, of_json
from tests.fuzz.parser import Parser, command
from tests.fuzz.parsers.config_json import SEEDS

_PLAIN = next(raw for raw in SEEDS if b"Qwen3MoeForCausalLM" in raw or b'"qwen3_moe"' in raw)
_SEEDS = (
    b'{"producer": {"name": "modelopt"}, "quantization": {"quant_algo": "FP8", "kv_cache_quant_algo": null}}',
    b'{"quantization": {"quant_algo": "NVFP4", "group_size": 16, "exclude_modules": ["lm_head"]}}',
    b'{"quantization": {"quant_algo": "MIXED_PRECISION", "weight_block_size": [128, 128]}}',
)


def _make(random: Random) -> bytes:
    return mutated(_SEEDS, random, of_json, of_json, of_json, duplicated_key, of_bytes)


def _read(raw: bytes, folder: Path) -> None:
    (folder / "config.json").write_bytes(_PLAIN)
    (folder / "hf_quant_config.json").write_bytes(raw)
    target = ("--flashinfer-version", "0.7.2", "--arch", "sm100", "--format", "json")
    command("warm", "--dry-run", "--model-path", folder, *target)


PARSER = Parser(_make, _read)
