"""Where a release runs what ModelOpt quantized otherwise than its lists say.

ModelOptMixedPrecisionConfig of srt/layers/quantization/modelopt_quant.py, and srt/configs/model_config.py.
"""

from __future__ import annotations

import re

from runtime.server.config import ModelConfig
from runtime.server.declared import HEADS_SINCE, MIXED, MODELOPTS
from runtime.server.formats.kinds import Kind
from runtime.server.shape import Server
from runtime.server.unserved_row import Row

_LISTED_ANEW = (0, 5, 20)  # of a wrapper's text, under any of its names
_WRAPPED = ("model.language_model.", "language_model.model.")
_OF_DRAFTS = re.compile(r"(?:.*\.)?mtp\.|model\.layers\.(\d+)\.")


def _lists_kinds(model: ModelConfig) -> bool:
    return model.checkpoint_quantization == MIXED and bool(model.quantized.names)


def _known_since(kind: Kind | None) -> tuple[int, int, int]:
    """Before, a matrix of its is made plain."""
    if kind is None or (kind.name == "fp8" and kind.per == "tensor"):
        return (0, 5, 12)
    if kind.name == "nvfp4":
        return (0, 5, 12) if kind.has_inputs else (0, 5, 15)
    return (0, 5, 17) if kind.name == "mxfp8" else (0, 5, 21)


def _has_newer(model: ModelConfig, server: Server) -> bool:
    return _lists_kinds(model) and server.release.number < max(map(_known_since, model.quantized.of_names))


def _is_wrapped(model: ModelConfig, server: Server) -> bool:
    inside = model.encoder is not None or any(name.startswith(_WRAPPED) for name in model.quantized.names)
    return _lists_kinds(model) and inside and server.release.number < _LISTED_ANEW


def _lists_a_draft(model: ModelConfig, server: Server) -> bool:
    if not _lists_kinds(model) or server.speculative is None:
        return False
    found = (_OF_DRAFTS.match(name) for name in model.quantized.names)
    return any(one and int(one[1] or model.num_layers) >= model.num_layers for one in found)


def _has_head(model: ModelConfig, server: Server) -> bool:
    of_modelopt = model.checkpoint_quantization in MODELOPTS and server.release.number < HEADS_SINCE
    return of_modelopt and not model.tie_word_embeddings and model.quantized.of_head() is not None


def _has_embedding(model: ModelConfig, server: Server) -> bool:
    return _lists_kinds(model) and model.quantized.of_linear([model.names.embedding]) is not None


def _takes_for_fp8(model: ModelConfig, server: Server) -> bool:
    return model.checkpoint_quantization == "mxfp8" and server.weights_quantization == "modelopt_fp8"


OF_MODELOPT = (
    Row(_takes_for_fp8, "ModelOpt's MXFP8 before 0.5.18: SGLang takes it for fp8 of a scale a tensor"),
    Row(_has_head, "a head in ModelOpt's formats: SGLang before 0.5.15 makes it plain"),
    Row(_has_embedding, "quantized_layers of an embedding: what SGLang makes of it is not known here"),
    Row(
        lambda m, s: _lists_kinds(m) and s.weights_quantization != MIXED,
        "quantized_layers without one in nvfp4: SGLang takes the file for one of w4afp8",
    ),
    Row(
        _has_newer, "quantized_layers of an algorithm that this SGLang knows nothing of: it makes them plain"
    ),
    Row(
        _is_wrapped, "quantized_layers of a wrapper's text: which matrices SGLang before 0.5.20 takes for it"
    ),
    Row(_lists_a_draft, "quantized_layers of a draft: under which names SGLang looks for them"),
)
