"""What older releases make otherwise of a checkpoint in compressed-tensors.

srt/layers/quantization/compressed_tensors: compressed_tensors.py, utils.py, and schemes' wNa16_moe.py.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator

from runtime.server.config import ModelConfig
from runtime.server.excluded import expert_parts, fused_name
from runtime.server.formats.kinds import Kind
from runtime.server.linears import each_listed, experts_listed
from runtime.server.served_names import called
from runtime.server.unserved_row import Row

_METHODS = ("compressed-tensors", "compressed_tensors", "w8a8_int8")  # whose lists are read alike
_ZEROS, _OF_EXPERTS, _WHOLE_NAMES, _HEADS = (0, 5, 13), (0, 5, 15), (0, 5, 17), (0, 5, 19)


def _before(release: tuple[int, int, int], when: Callable[[ModelConfig], bool], said: str) -> Row:
    number = ".".join(map(str, release))
    return Row(
        lambda m, s: m.checkpoint_quantization in _METHODS and s.release.number < release and when(m),
        f"{said} before {number}",
    )


def _kinds(model: ModelConfig) -> Iterator[Kind]:
    weights = model.quantized
    return (kind for kind in (weights.linear, weights.experts, *weights.of_expressions) if kind is not None)


def _has_zeros(model: ModelConfig) -> bool:
    return any(not kind.symmetric for kind in _kinds(model))


def _packs_experts_apart(model: ModelConfig) -> bool:
    """Their sizes were those of the group of all linears."""
    weights = model.quantized
    if (
        model.moe is None
        or not weights.strict
        or (not weights.expressions and weights.experts == weights.linear)
    ):
        return False
    kinds = map(weights.of_experts, experts_listed(model))
    return any(kind is not None and kind.name == "packed" for kind in kinds)


def _in_mxfp4(model: ModelConfig) -> bool:
    return any(kind.name == "mxfp4" for kind in _kinds(model))


def _ignores_parts_of_names(model: ModelConfig) -> bool:
    """What is listed was looked for anywhere in a name, in any letters."""
    listed = [one.lower() for one in model.excluded.names]
    return bool(listed) and any(
        any(one in name.lower() for one in listed) and not model.excluded.one(name) for name in _names(model)
    )


def _names(model: ModelConfig) -> Iterator[str]:
    """Of all matrices, as files and as SGLang's classes have them."""
    paths = () if model.names.served is None else model.names.served.paths
    for _, _, parts in each_listed(model):
        fused = fused_name(parts)
        for name in (*parts, *(() if fused is None else (fused,))):
            yield from dict.fromkeys((name, called(paths, name)))
    for experts in experts_listed(model):
        for name in expert_parts(experts):
            yield from dict.fromkeys((name, called(paths, name)))


COMPRESSED: tuple[Row, ...] = (
    _before(_ZEROS, _has_zeros, "integers that are not symmetric: SGLang has none"),
    _before(_OF_EXPERTS, _packs_experts_apart, "packed experts in a group of their own: SGLang asks another"),
    _before(_WHOLE_NAMES, lambda m: m.quantized.own_formats, "formats of groups: SGLang asks the file's"),
    _before(_WHOLE_NAMES, _in_mxfp4, "experts in mxfp4: compressed-tensors has none"),
    _before(_WHOLE_NAMES, _ignores_parts_of_names, "an ignore list: SGLang takes it for parts of names"),
    _before(
        _HEADS,
        lambda m: not m.tie_word_embeddings and m.quantized.of_head() is not None,
        "a quantized lm_head: SGLang has it plain",
    ),
)
