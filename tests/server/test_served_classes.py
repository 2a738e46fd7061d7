"""SGLang makes the class that `architectures` names: layers of another are not those of the model_type."""

from __future__ import annotations

from typing import Any

import pytest

from runtime.server.checkpoint import Checkpoint
from runtime.server.decoders.known import FAMILIES
from runtime.server.decoders.served_classes import SERVED
from runtime.server.decoders.wrappers import WRAPPERS
from runtime.server.errors import ConfigError, Unsupported
from tests.memory.checkpoints import checkpoints
from tests.oracle.published import published

_OF_SECTIONS = {
    *(
        "qwen2_vl_text",
        "qwen2_5_vl_text",
        "qwen3_vl_text",
        *("interns1_pro_text", "interns2_mobius_text"),
        "qwen3_vl_moe_text",
        "qwen3_omni_moe_text",
    ),
    *("glm4v_text", "glm4v_moe_text", "ernie4_5_vl_moe_text"),
}  # which stand in no file alone
_BY_CLASS = {"longcat_flash"}


def _llama(**changes: Any) -> Checkpoint:
    return Checkpoint({**published()["meta-llama/Llama-3.1-8B-Instruct"].config, **changes})


def test_every_model_type_tells_its_classes() -> None:
    assert {*FAMILIES, *WRAPPERS} - set(SERVED) == _OF_SECTIONS | _BY_CLASS


@pytest.mark.parametrize(
    "name",
    [
        *("LlamaModel", "InternLM2ForCausalLM", "Qwen3Model"),
        *("NoSuchForCausalLM", "LlamaForCausalLMx"),
        *("TransformersForCausalLM", "TransformersMultiModalForCausalLM", "TransformersEmbeddingModel"),
        *("TransformersForSequenceClassification", "TorchNativeLlamaForCausalLM", "XllmForCausalLM"),
    ],
)
def test_another_class_is_refused_by_name(name: str) -> None:
    with pytest.raises(Unsupported, match=f"architectures names {name}: the layers of SGLang's class"):
        _llama(architectures=[name]).model_config()


@pytest.mark.parametrize("told", ["LlamaForCausalLM", 5, {}, [None], ["LlamaForCausalLM", 1], True])
def test_what_is_no_list_of_names_is_refused(told: Any) -> None:
    with pytest.raises(ConfigError, match=r"architectures is .*: a list of names is needed"):
        _llama(architectures=told).model_config()


def test_a_published_checkpoint_is_of_its_own_class() -> None:
    for one in checkpoints():
        try:
            Checkpoint(one.config).model_config()
        except ConfigError as error:
            assert "architectures names" not in error.message, one.name


@pytest.mark.parametrize("name", ["Ernie4_5ForCausalLM", "Ernie4_5_ForCausalLM"])
def test_transformers_name_of_ernie_is_none_of_sglangs(name: str) -> None:
    """Whose registry then has transformers' layers: srt/models/registry.py, ernie4.py."""
    sizes = {"hidden_size": 64, "num_hidden_layers": 2, "num_attention_heads": 4, "vocab_size": 99}
    read = Checkpoint({"model_type": "ernie4_5", "architectures": [name], **sizes}).model_config()
    assert read.by_transformers is (name == "Ernie4_5ForCausalLM")
