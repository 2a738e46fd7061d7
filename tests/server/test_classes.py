"""The class of a config, as each release's own get_config names it."""

from __future__ import annotations

from typing import Any

import pytest

from runtime.server.checkpoint import Checkpoint
from runtime.server.class_table import KNOWN_SINCE
from runtime.server.classes import config_class
from runtime.server.errors import ConfigError
from runtime.server.releases import RELEASES, release_named


def _class(version: int = 23, **config: Any) -> str:
    return config_class(Checkpoint(config), release_named(f"0.5.{version}").release)


@pytest.mark.parametrize(
    ("kind", "name"),
    [
        ("llama", "LlamaConfig"),
        ("qwen3_moe", "Qwen3MoeConfig"),
        ("gpt_oss", "GptOssConfig"),
        ("deepseek_v32", "_DeepseekV32ConfigAlias"),
        ("kimi_k2", "_KimiK2ConfigAlias"),
        ("minimax_m2", "MiniMaxM2Config"),
        ("nemotron_h", "NemotronHConfig"),
        ("qwen3_5_moe", "Qwen3_5MoeConfig"),
        ("xlm-roberta", "XLMRobertaConfig"),
        ("NemotronH_Nano_VL_V2", "NemotronH_Nano_VL_V2_Config"),
    ],
)
def test_a_family_that_every_release_knows(kind: str, name: str) -> None:
    assert {_class(version, model_type=kind) for version in (12, 17, 23)} == {name}


@pytest.mark.parametrize(
    ("kind", "since", "name"),
    [
        ("step3p7", 13, "Step3p7Config"),
        ("zaya", 14, "ZayaConfig"),
        ("minimax_m3_vl", 15, "MiniMaxM3VLConfig"),
        ("inkling_mm_model", 16, "InklingMMConfig"),
        ("kimi_k3", 17, "KimiK3Config"),
        ("muse_glimmer", 18, "MuseGlimmerConfig"),
        ("dots3_note", 19, "Dots3Config"),
        ("hy_v4", 20, "HYV4Config"),
        ("gigachat3_5", 21, "GigaChat35Config"),
        ("mimo_v2_flash", 22, "MiMoV2FlashConfig"),
        ("muse_spark", 23, "MuseSparkConfig"),
    ],
)
def test_a_family_is_known_from_its_first_release_on(kind: str, since: int, name: str) -> None:
    assert _class(since, model_type=kind) == name
    with pytest.raises(ConfigError, match=rf"{kind}.*0\.5\.{since - 1} does not know it; 0\.5\.{since} is"):
        _class(since - 1, model_type=kind)


def test_the_one_family_whose_class_changed() -> None:
    assert _class(15, model_type="gemma4_unified") == "Gemma4UnifiedConfig"
    assert _class(16, model_type="gemma4_unified") == "_Gemma4UnifiedConfigAlias"


def test_a_checkpoint_brings_its_own_class_where_the_release_knows_none() -> None:
    own = {"AutoConfig": "configuration_step3p7.StepOwnConfig"}
    assert _class(12, model_type="step3p7", auto_map=own) == "StepOwnConfig"
    assert _class(13, model_type="step3p7", auto_map=own) == "Step3p7Config"
    assert _class(model_type="nobodys", auto_map=own) == "StepOwnConfig"


def test_architectures_that_decide_before_the_model_type() -> None:
    flash = {"model_type": "nobodys", "architectures": ["LongcatFlashForCausalLM"]}
    assert _class(**flash) == "LongcatFlashConfig"
    seeing = {"model_type": "deepseek_vl_v2", "architectures": ["DeepseekOCRForCausalLM"]}
    assert _class(**seeing) == "DeepseekVLV2Config"
    assert _class(model_type="deepseek_vl_v2") == "DeepseekVL2Config"


def test_an_unknown_family_is_spelled_as_its_architecture_or_refused() -> None:
    assert _class(model_type="foo_bar9", architectures=["FooBar9ForCausalLM"]) == "FooBar9Config"
    for config in ({}, {"architectures": ["OtherForCausalLM"]}, {"architectures": ["ForCausalLM"]}):
        with pytest.raises(ConfigError, match=r"'foo_bar9': SGLang 0\.5\.23 does not know such a model"):
            _class(model_type="foo_bar9", **config)


@pytest.mark.parametrize("value", [3, [], {}, True])
def test_a_model_type_that_is_no_name_is_refused_by_name(value: object) -> None:
    with pytest.raises(ConfigError, match=r"config\.json: model_type is"):
        _class(model_type=value)


@pytest.mark.parametrize("value", [3, [], "x.Y"])
def test_an_auto_map_that_is_no_section_is_refused_by_name(value: object) -> None:
    with pytest.raises(ConfigError, match=r"config\.json: auto_map is"):
        _class(model_type="nobodys", auto_map=value)


def test_the_table_names_releases_and_each_family_once_in_each() -> None:
    assert set(KNOWN_SINCE) <= {release.number for release in RELEASES}
    for names in KNOWN_SINCE.values():
        kinds = [word.partition("=")[0] for word in names.split()]
        assert len(kinds) == len(set(kinds))
    assert sum(len(names.split()) for names in KNOWN_SINCE.values()) == 775
