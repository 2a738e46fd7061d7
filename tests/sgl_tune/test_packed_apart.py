"""Where classes end that multiply by what a quantized matrix stores, and what of their files they take."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from sgl_tune.deployment.deployment import Deployment
from sgl_tune.deployment.options import ServerFlags
from sgl_tune.deployment.resolve import resolve_deployment
from sgl_tune.keys.keys import dense_shapes
from sgl_tune.keys.starts import never_starts
from tests.memory.quantized import SECTIONS
from tests.runtime.families import make_reference
from tests.runtime.families.reference import served_json

_PLAIN = {
    "compressed-tensors": lambda one: f"re:.*{one}.*",
    "modelopt": lambda one: f"*{one}*",
}
_PACKED = ("int4", "nvfp4", "awq")


def _found(folder: Path, family: str, section: str, *plain: str, **told: Any) -> Deployment:
    quantized = SECTIONS[section]
    method, key = quantized["quant_method"], "modules_to_not_convert"
    listed = [_PLAIN.get(method, str)(one) for one in ("lm_head", *plain)]
    key = "ignore" if method in _PLAIN else key
    config = {**served_json(make_reference(family)), "dtype": "bfloat16"}
    config |= (
        {"auto_map": {"AutoConfig": "configuration_xverse.XverseConfig"}} if family == "xverse_moe" else {}
    )
    config |= {"quantization_config": {**quantized, key: listed}}
    (folder / "config.json").write_text(json.dumps(config))
    flags = ServerFlags(**{"model_path": str(folder), "gpu": "H200", "sglang_version": "0.5.23", **told})
    return resolve_deployment(flags, environ={})


@pytest.mark.parametrize(
    ("section", "said"),
    [
        ("fp8 a tensor", None),
        ("modelopt fp8", None),
        ("fp8", None),
        ("fp8 blocks", "has no scale for what is in fp8 a block"),
        ("int8", "multiplies rows by what is in int8 a row"),
        ("modelopt nvfp4", "multiplies rows by what is in nvfp4 a group"),
        *((one, "apart, and knows no way of those in") for one in ("int4", "nvfp4", "awq")),
    ],
)
def test_minicpm3_takes_its_keys_and_values_apart(section: str, said: str | None, tmp_path: Path) -> None:
    told = {"dtype": "float16"} if section == "awq" else {}
    found = _found(tmp_path, "minicpm3", section, **told)
    why = never_starts(found)
    assert why is None if said is None else why is not None and said in why
    assert never_starts(_found(tmp_path, "minicpm3", section, "kv_b_proj", **told)) is None
    assert said is not None or not found.shape.unknown


def test_minicpm3s_rows_of_scales_are_named_and_its_products_known(tmp_path: Path) -> None:
    found = _found(tmp_path, "minicpm3", "fp8 a row")
    assert "kv_b_proj in fp8 a row" in found.shape.unknown and never_starts(found) is None
    tuned = _found(tmp_path, "minicpm3", "modelopt fp8", gpu="B200", moe_runner_backend="flashinfer_trtllm")
    sizes = len(dense_shapes(tuned))
    plain = _found(
        tmp_path, "minicpm3", "modelopt fp8", "kv_b_proj", gpu="B200", moe_runner_backend="flashinfer_trtllm"
    )
    assert sizes == len(dense_shapes(plain)) + 2  # which its heads multiply by, and never the whole


@pytest.mark.parametrize("family", ["deepseek", "xverse_moe"])
@pytest.mark.parametrize("section", ["fp8", "fp8 a row", "modelopt nvfp4", *_PACKED])
def test_experts_that_a_class_packs_are_plain_or_end(family: str, section: str, tmp_path: Path) -> None:
    told = {"dtype": "float16"} if section == "awq" else {}
    why = never_starts(_found(tmp_path, family, section, **told))
    packs = "packs the weights of" if section in _PACKED else "multiplies by"
    assert why is not None and f"SGLang {packs}" in why
    plain = _found(tmp_path, family, section, "experts", **told)
    assert not plain.shape.unknown and never_starts(plain) is None


def test_a_list_of_deepseeks_experts_by_their_own_names_means_nothing_to_its_class(tmp_path: Path) -> None:
    why = never_starts(_found(tmp_path, "deepseek", "fp8", "mlp.experts"))
    assert why is not None and "SGLang multiplies by model.layers.1.mlp.experts" in why


@pytest.mark.parametrize("section", ["fp8", "fp8 a row", "modelopt fp8", "awq"])
def test_dbrxs_experts_are_plain_whatever_is_asked(section: str, tmp_path: Path) -> None:
    told = {"dtype": "float16"} if section == "awq" else {}
    why = never_starts(_found(tmp_path, "dbrx", section, **told))
    assert why is not None and "a list has to keep it so" in why
    plain = _found(tmp_path, "dbrx", section, "ffn", **told)
    assert not plain.shape.unknown and never_starts(plain) is None


def test_persimmon_reads_blocks_of_whole_heads(tmp_path: Path) -> None:
    why = never_starts(_found(tmp_path, "persimmon", "fp8 blocks"))
    assert why is not None and "16 rows of one are no whole blocks" in why
    assert never_starts(_found(tmp_path, "persimmon", "fp8 a row")) is None
