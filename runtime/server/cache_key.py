"""The folder in which SGLang looks for its tactics cache: the parts of the key, their digest, the path."""

import hashlib
from collections.abc import Iterable, Sequence
from dataclasses import dataclass

from runtime.server.errors import ConfigError


@dataclass(frozen=True, slots=True)
class KeyInputs:
    """The values of a key's parts, resolved as the server resolves them."""

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


PART_NAMES = (
    "model path",
    "dtype",
    "quantization",
    "MoE backend",
    "tp",
    "pp",
    "attention dp",
    "ep",
    "config class",
)


def named_parts(parts: Sequence[str]) -> dict[str, str]:
    """Return the name of each part. Parts after the first ones have the form `name=value`."""
    named = dict(zip(PART_NAMES, parts, strict=False))
    for part in parts[len(PART_NAMES) :]:
        name, _, value = part.partition("=")
        named[name] = value
    return named


def key_parts(inputs: KeyInputs) -> tuple[str, ...]:
    """Return the parts that SGLang joins with `|` and hashes: base, selection, skipped ops, draft."""
    parts = [
        inputs.model_path,
        f"torch.{inputs.dtype}",
        str(inputs.quantization),
        inputs.moe_runner_backend,
        *map(str, (inputs.tp, inputs.pp, inputs.attn_dp, inputs.moe_ep)),
        inputs.config_class,
        "candidate_selection=v2_default",
        f"skip_ops={','.join(sorted(set(inputs.skip_ops)))}",
    ]
    if inputs.is_draft:
        parts.append(f"draft_quant={inputs.draft_quantization}")
    return tuple(parts)


def cache_key(parts: Iterable[str]) -> str:
    text = "|".join(parts)
    try:
        return hashlib.sha256(text.encode(errors="surrogateescape")).hexdigest()[:16]
    except UnicodeEncodeError:
        raise ConfigError(f"the key {text[:200]!r} is not text: no server can make it either") from None


def cache_folder(flashinfer: str, arch: str, key: str) -> str:
    """Return the path below the cache directory, with `/` on every system because JSON shows it too."""
    return f"flashinfer/autotune/{flashinfer}/{arch}/{key}"
