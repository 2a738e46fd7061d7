"""Files of compressed-tensors that a server is told to read by rows."""

from __future__ import annotations

from typing import Any

import pytest

from runtime.server.checkpoint import Checkpoint
from runtime.server.errors import Unsupported
from runtime.server.formats.kinds import Kind
from tests.memory.quantized import SECTIONS
from tests.server.servers import LLAMA

_FP8, _INT8 = SECTIONS["fp8 a row"], SECTIONS["int8"]
_EXCLUDING = {**_FP8, "ignore": ["lm_head", "model.layers.0.mlp.down_proj"]}


def _read(section: dict[str, Any], method: str | None) -> dict[str, Any]:
    found: dict[str, Any] = Checkpoint({**LLAMA, "quantization_config": section}).read_by(method).hf
    return found["quantization_config"]  # type: ignore[no-any-return]


@pytest.mark.parametrize(("section", "method"), [(_FP8, "w8a8_fp8"), (_INT8, "w8a8_int8")])
def test_a_file_by_rows_is_read_so(section: dict[str, Any], method: str) -> None:
    assert _read(section, method) == {**section, "quant_method": method}
    assert _read(section, None) is section and _read(section, "compressed-tensors") is section


def test_a_file_of_its_own_is_left_alone() -> None:
    own = {"quant_method": "w8a8_fp8"}
    assert _read(own, "w8a8_fp8") is own


@pytest.mark.parametrize(
    ("section", "method", "why"),
    [
        (_FP8, "w8a8_int8", "for int8 a row"),
        (_INT8, "w8a8_fp8", "for fp8 a row"),
        (SECTIONS["fp8 a block"], "w8a8_fp8", "for fp8 a row"),
        (SECTIONS["fp8 a tensor"], "w8a8_fp8", "for fp8 a row"),
        (SECTIONS["nvfp4"], "w8a8_fp8", "for fp8 a row"),
    ],
)
def test_of_others_nothing_is_known(section: dict[str, Any], method: str, why: str) -> None:
    with pytest.raises(Unsupported, match=why):
        _read(section, method)


def test_fp8_excludes_nothing() -> None:
    """As SGLang's class: held_random --quantized --server "--quantization w8a8_fp8" of tests.oracle."""
    model = Checkpoint({**_TINY, "quantization_config": _EXCLUDING}).read_by("w8a8_fp8").model_config()
    assert model.quantized.of_linear(("model.layers.0.mlp.down_proj",)) == Kind("fp8", "row")


_TINY = {
    **LLAMA, "hidden_size": 64, "intermediate_size": 128, "num_attention_heads": 4, "num_hidden_layers": 2,
    "num_key_value_heads": 4, "vocab_size": 128, "max_position_embeddings": 64, "hidden_act": "silu",
    "rms_norm_eps": 1e-5,
}  # fmt: skip
