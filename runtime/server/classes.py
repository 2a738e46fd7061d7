"""The class whose name stands in the key: SGLang's own of a model_type, else transformers'."""

from __future__ import annotations

from functools import cache

from runtime.server.checkpoint import Checkpoint
from runtime.server.class_table import KNOWN_SINCE
from runtime.server.decoders.longcat import ARCHITECTURES as LONGCATS
from runtime.server.errors import ConfigError
from runtime.server.releases import Release

_OCR_KINDS = ("deepseek_vl_v2", "deepseek-ocr")
_MODEL_SUFFIXES = ("ForCausalLM", "ForConditionalGeneration", "LMHeadModel", "Model")


def config_class(model: Checkpoint, release: Release) -> str:
    kind, architecture = model.model_type, model.architecture
    if architecture in LONGCATS:
        return "LongcatFlashConfig"
    if kind in _OCR_KINDS and "OCR" in architecture:
        return "DeepseekVLV2Config"
    found = _known_to(release.number).get(kind) or _of_the_checkpoint(model)
    if found is None and kind not in _ever_known():
        found = _as_usually_spelled(kind, architecture)
    if found is None:
        raise ConfigError(f"config.json: model_type {kind!r}: SGLang {release.version} {_since(kind)}")
    return found


def is_guessed(model: Checkpoint, release: Release) -> bool:
    """No release that is known has such a model: its class is spelled as transformers usually does."""
    kind = model.model_type
    return kind not in _known_to(release.number) and _of_the_checkpoint(model) is None and bool(kind)


def _since(kind: str) -> str:
    first = next((number for number, names in _tables().items() if kind in names), None)
    version = ".".join(map(str, first or ()))
    return f"does not know it; {version} is the first that does" if first else "does not know such a model"


def _of_the_checkpoint(model: Checkpoint) -> str | None:
    """Its own Python class, which --trust-remote-code lets in: `configuration_x.XConfig`."""
    named = model.mapping("auto_map").get("AutoConfig")
    return named.rpartition(".")[2] if isinstance(named, str) and named else None


def _as_usually_spelled(kind: str, architecture: str) -> str | None:
    """FooBarForCausalLM of foo_bar: a class of a transformers newer than any that is known."""
    for suffix in _MODEL_SUFFIXES:
        stem = architecture.removesuffix(suffix)
        if stem not in ("", architecture) and stem.lower() == "".join(filter(str.isalnum, kind.lower())):
            return f"{stem}Config"
    return None


@cache
def _tables() -> dict[tuple[int, ...], dict[str, str]]:
    return {number: dict(map(_named, names.split())) for number, names in KNOWN_SINCE.items()}


@cache
def _known_to(number: tuple[int, ...]) -> dict[str, str]:
    known: dict[str, str] = {}
    for since, names in _tables().items():
        if number >= since:
            known |= names
    return known


def _ever_known() -> dict[str, str]:
    return _known_to(max(KNOWN_SINCE))


def _named(word: str) -> tuple[str, str]:
    kind, _, name = word.partition("=")
    usual = "".join(part[:1].upper() + part[1:] for part in kind.replace("-", "_").split("_"))
    return kind, name or f"{usual}Config"
