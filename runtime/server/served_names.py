"""Where SGLang's class quantizes other matrices than a checkpoint does, as it calls them otherwise.

Its server then ends at a tensor that it does not know, or multiplies by one that it has never read.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence
from contextlib import suppress

from runtime.server.call_rules import has_loose_experts_in_file
from runtime.server.config import ModelConfig
from runtime.server.errors import ConfigError
from runtime.server.excluded import fused_name, stored_otherwise
from runtime.server.formats.assigned import Quantized
from runtime.server.formats.kinds import Kind
from runtime.server.linears import each_listed, experts_listed
from runtime.server.tensor_names import ServedNames

_LOOSE = {"deepseek": "0.experts", "xverse_moe": "experts.0"}
_EACH_BY_ITSELF, _PLAIN_ANYWAY = ("fp8", "awq", "gptq"), ("lm_head", "embed_tokens", "norm")


def disagreements(model: ModelConfig) -> Iterator[str]:
    """Nothing, where a server ends at a matrix anyway: that is said where it is made."""
    names, method = model.names.served, model.checkpoint_quantization
    if names is None or method is None:
        return
    with suppress(ConfigError):
        if not has_loose_experts_in_file(model, method):
            yield from _disagreements(model, names)
        yield from _of_bare(model, names)
        yield from _of_head(model.quantized, names)


def mapped(model: ModelConfig) -> Iterator[str]:
    """srt/models/transformers.py has all begin with `model.`, in lists and among kinds of modules."""
    excluded, method = model.quantized.excluded, model.checkpoint_quantization
    if not model.by_transformers or method is None:
        return
    if method not in _EACH_BY_ITSELF:
        yield f"what {method} and its lists mean to transformers' layers is not known here"
    for name in excluded.names if excluded.way == "paths" else ():
        if not name.startswith(("model.", "layers.")) and name not in _PLAIN_ANYWAY:
            yield f"{name[:60]!r} is listed: SGLang has lists begin with model., and looks for another path"


def _of_bare(model: ModelConfig, names: ServedNames) -> Iterator[str]:
    for layer in range(model.num_layers):
        for one in names.bare:
            stored = model.quantized.of_linear([f"{model.layer_name(layer)}.{one}"])
            if stored is not None:
                yield _said(f"{model.layer_name(layer)}.{one}", stored)


def _of_head(weights: Quantized, names: ServedNames) -> Iterator[str]:
    stored, served = weights.of_head(), weights.of_head(called(names.paths, "lm_head"))
    if stored != (None if "lm_head" in names.plain else served):
        yield _said("lm_head", stored)


def kinds_of_loose(model: ModelConfig, within: str = "") -> Iterator[tuple[str, Kind | None]]:
    """Of DeepSeek-MoE's experts and XVERSE's, matrices by themselves, as their classes call the first;
    `within`: of a class of more than text, what it calls that part."""
    called_so = _LOOSE.get(model.model_type)
    is_meant = bool(within) == (model.encoder is not None)
    for name in experts_listed(model) if called_so and is_meant else ():
        first = f"{within}{name.removesuffix('experts')}{called_so}"
        yield name, model.quantized.of_linear([f"{first}.gate_proj", f"{first}.up_proj"])
        yield name, model.quantized.of_linear([f"{first}.down_proj"])


def plain_loose(model: ModelConfig) -> Iterator[str]:
    """... which are plain there, and in a file they are not; others end a server anyway."""
    with suppress(ConfigError):
        kinds = list(kinds_of_loose(model))
        if model.checkpoint_quantization is not None and {kind for _, kind in kinds} == {None}:
            stored = ((name, model.quantized.of_experts(name)) for name, _ in kinds)
            yield from (_said(name, kind) for name, kind in stored if kind is not None)


def _disagreements(model: ModelConfig, names: ServedNames) -> Iterator[str]:
    weights = model.quantized
    for size, _, parts in each_listed(model):
        listed = [called(names.files, part) for part in parts]
        stored, served = weights.of_linear(listed), _served(model, names, parts)
        if {stored, weights.of_linear(parts)} != {served}:
            yield _said(listed[0], stored)
        if served is not None and names.by_rows in size.modules and not _lies_by_rows(served):
            yield f"SGLang takes {parts[0][:80]} apart by rows: {served.name} a {served.per} has others"
    for own in experts_listed(model):
        yield from _of_experts(model, names, own)


def _of_experts(model: ModelConfig, names: ServedNames, own: str) -> Iterator[str]:
    served, module = None, called(names.files, own)
    if not names.plain_experts:
        served = model.quantized.of_experts(called(names.paths, own))
    if not names.experts and model.quantized.of_experts(own) != served:
        yield _said(own, model.quantized.of_experts(own))
    for name in names.experts:
        listed = f"{module.removesuffix('experts')}{name}"
        stored = model.quantized.of_linear([listed])
        if {stored, model.quantized.of_experts(own)} != {served}:
            yield _said(listed, stored)


def _served(model: ModelConfig, names: ServedNames, parts: Sequence[str]) -> Kind | None:
    in_fp4 = model.checkpoint_quantization == "modelopt_fp4"
    if parts[0].endswith((*names.plain, *names.plain_in_file, *(names.plain_in_fp4 if in_fp4 else ()))):
        return None
    own = [called(names.paths, part) for part in parts]
    fused = fused_name(own)
    if fused is not None and model.excluded.way == "ends":
        own = own if fused.rpartition(".")[2] in model.excluded.unpacks else [fused]
    return model.quantized.of_linear(own)


def called(paths: tuple[tuple[str, str], ...], module: str) -> str:
    for pattern, instead in paths:
        module = re.sub(pattern, instead, module)
    return module


def _lies_by_rows(kind: Kind) -> bool:
    """Each of its tensors has an entry for every row."""
    return kind.per == "row" and not kind.is_static


def kept_plain(model: ModelConfig) -> Iterator[str]:
    """What is not quantized as most are, where its class calls matrices otherwise than lists do."""
    if model.checkpoint_quantization is None:
        return
    with suppress(ConfigError):
        for name, kind, usual in _stored(model, model.quantized):
            if kind != usual:
                yield _apart(name)


def told_otherwise(model: ModelConfig, meant: Quantized) -> Iterator[str]:
    """What its file means to be stored otherwise than SGLang's class looks for it to be."""
    if model.checkpoint_quantization is None or meant == model.quantized:
        return
    with suppress(ConfigError):
        served = list(_stored(model, model.quantized))
        try:
            as_meant = list(_stored(model, meant))
        except ConfigError as error:
            yield f"{error.message.removeprefix('quantization_config: ')}, as SGLang's class has other names"
            return
        both = zip(served, as_meant, strict=True)
        yield from (_apart(name) for (name, kind, _), (_, other, _) in both if kind != other)


def _stored(model: ModelConfig, weights: Quantized) -> Iterator[tuple[str, Kind | None, Kind | None]]:
    """Each matrix, all experts of a layer, how these are stored, and how most are."""
    for _, _, parts in each_listed(model):
        yield parts[0], weights.of_linear(parts), weights.linear
    for name in experts_listed(model):
        yield name, weights.of_experts(name), weights.experts


def _apart(name: str) -> str:
    are, them = ("are", "them") if name.endswith("experts") else ("is", "it")
    return f"{name[:80]} {are} told apart: SGLang's class has another name for {them}"


def _said(name: str, stored: Kind | None) -> str:
    return stored_otherwise(name, is_plain=stored is None)
