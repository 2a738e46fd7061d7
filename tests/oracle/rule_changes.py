"""What a release changed in the files that our rules were read in: where to look before it is asked."""

from __future__ import annotations

from collections.abc import Iterator
from difflib import unified_diff
from pathlib import Path

SOURCES = (
    "server_args.py",
    "arg_groups/**/*.py",
    "configs/model_config.py",
    "environ.py",
    "layers/moe/moe_runner/*.py",
    "layers/quantization/fp4_utils.py",
    "layers/quantization/fp8_utils.py",
    "mem_cache/kv_cache_configurator.py",
    "mem_cache/kv_cache_dtype.py",
    "model_executor/cuda_graph_config.py",
    "model_executor/runner/flashinfer_autotune.py",
    "utils/hf_transformers/config.py",
)


def rule_changes(old: Path, new: Path) -> dict[str, str]:
    """A unified diff a file, by its path below srt; of unpacked wheels."""
    names = sorted({*_sources(old), *_sources(new)})
    diffs = {name: "".join(_diff(name, old, new)) for name in names}
    return {name: diff for name, diff in diffs.items() if diff}


def _sources(wheel: Path) -> Iterator[str]:
    srt = wheel / "sglang/srt"
    for pattern in SOURCES:
        yield from (path.relative_to(srt).as_posix() for path in srt.glob(pattern))


def _diff(name: str, old: Path, new: Path) -> Iterator[str]:
    texts = [_lines(wheel / "sglang/srt" / name) for wheel in (old, new)]
    return unified_diff(*texts, f"{old.name}/{name}", f"{new.name}/{name}")


def _lines(path: Path) -> list[str]:
    return path.read_text().splitlines(keepends=True) if path.is_file() else []
