"""Which quantization a checkpoint and an argument make together, by release, of a model and of a draft."""

from __future__ import annotations

from collections.abc import Iterator
from itertools import groupby, product
from operator import itemgetter
from typing import Any

from runtime.server.checkpoint import Checkpoint
from runtime.server.quantization import declared_method, model_quantization
from runtime.server.releases import RELEASES, Release
from tests.book.plain import told
from tests.book.rows import Row

_LAYERS = {"quantized_layers": {"a": {"quant_algo": "NVFP4"}, "b": {"quant_algo": "FP8"}}}
_AWQ = {"quant_method": "awq", "bits": 4, "group_size": 128, "zero_point": True}
_GPTQ = {"quant_method": "gptq", "bits": 4, "group_size": 128, "sym": True, "desc_act": False}
_SECTIONS: tuple[dict[str, Any], ...] = (
    {},
    *({"quant_method": name} for name in ("fp8", "FP8", "mxfp8", "mxfp4", "compressed-tensors", "quark")),
    *({"quant_method": name} for name in ("modelopt_fp8", "modelopt_fp4", "modelopt_mixed", "w8a8_int8", 5)),
    *({"quant_algo": name} for name in ("FP8", "MXFP8", "NVFP4", "nvfp4", "FP8_PB_WO", "INT4_AWQ", None)),
    {"quant_method": "modelopt", "quantization": {"quant_algo": "FP8"}},
    {"quant_algo": "MIXED_PRECISION"},
    {"quant_algo": "MIXED_PRECISION", **_LAYERS},
    {"quant_algo": "mixed_precision", "quantized_layers": {"a": {"quant_algo": "FP8"}, "b": "x"}},
    *(_AWQ, {**_AWQ, "bits": 8}, {**_AWQ, "zero_point": False}, {**_AWQ, "group_size": 48}),
    {"quant_method": "awq", "bits": 4, "q_group_size": 64, "zero_point": True},
    *(_GPTQ, {**_GPTQ, "bits": 8}, {**_GPTQ, "bits": 3}, {**_GPTQ, "sym": False}),
    {**_GPTQ, "group_size": 48},
    *({**_GPTQ, "is_marlin_format": True}, {name: _GPTQ[name] for name in _GPTQ if name != "desc_act"}),
)  # fmt: skip
_ASKED = (
    *(None, "fp8", "FP8", "mxfp8", "modelopt", "modelopt_fp4", "modelopt_fp8", "modelopt_mixed", "mxfp4"),
    *("nvfp4_online", "quark_mxfp4", "marlin", "awq", "awq_marlin", "gptq", "gptq_marlin", "moe_wna16"),
    *("humming", "w4afp8", "compressed-tensors", "nothing"),
)


_HOLDERS = (("LlamaForCausalLM", False), ("LlamaForCausalLM", True), ("NemotronHForCausalLM", False))


def methods() -> Iterator[Row]:
    for number, section in enumerate(_SECTIONS):
        for architecture, in_file in _HOLDERS:
            model = _model(architecture, section, in_file)
            where = f"{number} {section} of {architecture}{', in a file of its own' if in_file else ''}"
            yield where, [_runs(declared_method, (model,))]
            for asked, draft in product(_ASKED, (False, True)):
                yield (
                    f"{where}: {asked}{' of a draft' if draft else ''}",
                    _runs(_method, (model, asked, draft)),
                )


def _model(architecture: str, section: dict[str, Any], in_file: bool) -> Checkpoint:
    named = {"architectures": [architecture], "model_type": "nemotron_h" if "H" in architecture else "llama"}
    if in_file:
        return Checkpoint(named, {"quantization": section})
    return Checkpoint({**named, "quantization_config": section})


def _method(model: Checkpoint, asked: str | None, draft: bool, release: Release) -> str | None:
    return model_quantization(asked, model, release, draft)


def _runs(answer: Any, arguments: tuple[Any, ...]) -> dict[str, Any]:
    """By the release that brought each."""
    found = [(row.version, _short(told(answer, *arguments, row))) for row in RELEASES]
    return {next(rows)[0]: one for one, rows in groupby(found, key=itemgetter(1))}


def _short(one: Any) -> Any:
    """Of a refusal what to try: what it says names the release."""
    return one["refused"]["tries"] if isinstance(one, dict) else one


METHODS_OF = {"methods": methods}
