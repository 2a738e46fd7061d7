"""Where SGLang's versions look: the parts of a cache's key, its folder and the names of its rank files.

The next SGLang version is one more line of `RECIPES`.
"""

from __future__ import annotations

import hashlib
from collections.abc import Iterable
from dataclasses import dataclass, replace

from runtime.server.errors import ConfigError
from runtime.server.sizing import release

FIRST = (0, 5, 12)


@dataclass(frozen=True, slots=True)
class Recipe:
    """What one SGLang version puts into its key, in this order: base, candidate selection, skip, draft."""

    sglang: str
    flashinfer: str
    candidate_selection: str | None = None
    skip_ops: bool = False
    always_skipped: tuple[str, ...] = ()
    draft_part: bool = False
    notes: tuple[str, ...] = ()
    warnings: tuple[str, ...] = ()


_BASE = Recipe("0.5.12", "0.6.11.post1")
_DRAFT = replace(_BASE, draft_part=True)
_SKIP = replace(_DRAFT, skip_ops=True)
RECIPES = (
    _BASE,
    replace(_BASE, sglang="0.5.13", flashinfer="0.6.12"),
    replace(_BASE, sglang="0.5.14", flashinfer="0.6.12"),
    replace(_DRAFT, sglang="0.5.15", flashinfer="0.6.12"),
    replace(_DRAFT, sglang="0.5.16", flashinfer="0.6.14"),
    replace(_SKIP, sglang="0.5.17", flashinfer="0.6.15.post1", always_skipped=("mxfp8_gemm",)),
    replace(_SKIP, sglang="0.5.18", flashinfer="0.6.17"),
    replace(_SKIP, sglang="0.5.19", flashinfer="0.6.18"),
    replace(_SKIP, sglang="0.5.20", flashinfer="0.6.18"),
    replace(_SKIP, sglang="0.5.21", flashinfer="0.6.18"),
    replace(_SKIP, sglang="0.5.22", flashinfer="0.7.1"),
    replace(_SKIP, sglang="0.5.23", flashinfer="0.7.2", candidate_selection="v2_default"),
)


def recipe_for(version: str | None) -> Recipe:
    """The recipe of a version, with that version's own name; None is the newest known."""
    newest = RECIPES[-1]
    if version is None:
        return replace(newest, notes=(f"SGLang {newest.sglang}: the newest known; none is installed here",))
    wanted = release(version)
    if not wanted:
        raise ConfigError(f"--sglang-version {version!r} is not a version", "write it as 0.5.23")
    if wanted < FIRST:
        raise ConfigError(
            f"SGLang {version} keeps its autotune results in memory only: it has no cache file",
            "0.5.12 is the first version with a cache file",
        )
    match = next((recipe for recipe in RECIPES if release(recipe.sglang) == wanted), None)
    if match is not None:
        return replace(match, sglang=version)
    doubt = f"SGLang {version} is newer than {newest.sglang}, the newest known: the same key is assumed"
    return replace(newest, sglang=version, warnings=(doubt,))


@dataclass(frozen=True, slots=True)
class KeyInputs:
    """The strings and sizes a key is made of, resolved as the server resolves them."""

    model_path: str
    dtype: str
    quantization: str | None
    moe_runner_backend: str
    tp: int
    pp: int
    attn_dp: int
    moe_ep: int
    config_class: str
    skip_ops: tuple[str, ...] = ()
    is_draft: bool = False
    draft_quantization: str | None = None


def key_parts(recipe: Recipe, inputs: KeyInputs) -> tuple[str, ...]:
    """What SGLang joins with `|` and hashes."""
    sizes = (inputs.tp, inputs.pp, inputs.attn_dp, inputs.moe_ep)
    parts = [
        inputs.model_path,
        f"torch.{inputs.dtype}",
        str(inputs.quantization),
        inputs.moe_runner_backend,
        *map(str, sizes),
        inputs.config_class,
    ]
    if recipe.candidate_selection:
        parts.append(f"candidate_selection={recipe.candidate_selection}")
    if recipe.skip_ops:
        parts.append("skip_ops=" + ",".join(sorted({*inputs.skip_ops, *recipe.always_skipped})))
    if inputs.is_draft and recipe.draft_part:
        parts.append(f"draft_quant={inputs.draft_quantization}")
    return tuple(parts)


def cache_key(parts: Iterable[str]) -> str:
    return hashlib.sha256("|".join(parts).encode()).hexdigest()[:16]


def cache_folder(flashinfer: str, arch: str, key: str) -> str:
    """Below the cache directory, with `/` on every system: it is also what JSON shows."""
    return f"flashinfer/autotune/{flashinfer}/{arch}/{key}"
