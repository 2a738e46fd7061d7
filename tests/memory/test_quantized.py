"""What a rank holds of the first layers of quantized checkpoints, beside what SGLang's own classes make."""

from __future__ import annotations

import json
from typing import Any

import pytest
import torch

from runtime.forward.comm import VirtualCommunicator
from runtime.models.decoder import Decoder
from runtime.models.encoder import EncoderWeights
from runtime.server.checkpoint import Checkpoint
from runtime.server.config import RuntimeConfig
from runtime.server.errors import ConfigError
from runtime.server.parallel_config import ParallelConfig
from tests.memory.quantized import FIRST, RECORDED, SECTIONS, config_of
from tests.runtime.families import make_reference
from tests.runtime.families.reference import served_json
from tests.sweeps import taken

_META = torch.device("meta")
HELD = json.loads(RECORDED.read_text())
_LOOPS = "a/iquest-coder-v1-40b-loop-instruct-from-memory"
# Its class makes them, and here they are refused: a rank's columns are no multiple of a group, its rows none
# of a packed word, or experts are kept plain by an expression of GPTQ's, which other classes do not ask.
# Phi 2's class quantizes its head, whatever is listed, and so does that of transformers' layers.
# No list means attention of Voxtral's ear and Qwen3-Omni's, which then is packed, and a file has it plain.
# InternLM 2's class ends when it loads what it made: of wqkv it takes nothing apart but rows.
REFUSED = (
    ("LiquidAI/LFM2-8B-A1B", "int4", "8"),
    ("moonshotai/Kimi-Linear-48B-A3B-Instruct", "int4", "8"),
    ("moonshotai/Kimi-Linear-48B-A3B-Instruct", "gptq", "8"),
    *(("arcee-ai/Trinity-Mini", "gptq", tp) for tp in "128"),
    ("a/sdar-30b-a3b-from-memory", "int4", "8"),
    *((_LOOPS, one, tp) for one in ("int4", "gptq") for tp in "28"),
    *(
        ("internlm/internlm2_5-7b", one, tp)
        for one in SECTIONS.keys() - {"fp8 a row", "int8"}
        for tp in "128"
    ),
    *(
        (name, "gptq", "8")
        for name in (
            "nvidia/Llama-3_3-Nemotron-Super-49B-v1",
            "xverse/XVERSE-13B",
            "a/glm-4-9b-chat-from-memory",
            "Qwen/Qwen-7B",
            "baichuan-inc/Baichuan2-7B-Base",
            "microsoft/phi-2",
            "stabilityai/stablelm-2-1_6b",
            "allenai/OLMo-7B-0424-hf",
            "a/nanbeige-4.2-3b-from-memory",
            "a/spark-2.5-of-the-sizes-of-its-class",
            "a/hy4-preview-as-its-classes-have-it",
            "Qwen/Qwen3.8-Flash-Next",
            "a/llada2-mini-from-memory",
        )
    ),
    *(
        (name, "gptq", "4")
        for name in (
            "a/janus-pro-7b-from-memory",
            "a/locate-anything-3b-around-qwen2.5-3b",
            "a/mimo-v2.5-asr-from-memory",
        )
    ),
    *((name, "gptq", "2") for name in ("a/glm-4-9b-chat-from-memory", "Qwen/Qwen3.8-Flash-Next")),
    *(
        (name, one, tp)
        for name in ("microsoft/phi-2", "a/seed-oss-36b-by-its-card")
        for one in ("modelopt fp8", "modelopt nvfp4")
        for tp in "128"
    ),
    *(
        (name, one, tp)
        for name in ("a/voxtral-mini-3b-from-its-classes", "Qwen/Qwen3-Omni-30B-A3B-Instruct")
        for one in SECTIONS.keys() - {"fp8 a row", "fp8 a tensor", "int8", "modelopt fp8", "fp8"}
        for tp in "124"
    ),
    *(("a/tele-flm-52b-from-memory", one, "8") for one in ("nvfp4", "nvfp4 of weights")),
    *(("a/tele-flm-52b-from-memory", "gptq", tp) for tp in "128"),
)


def _held(name: str, section: str, tp: int, major: int) -> int | None:
    """None: its class ends, and so does ours."""
    comm, runtime = _rank(tp), RuntimeConfig(sm_major=major)
    try:
        model = Checkpoint(config_of(name, section)).model_config()
        if model.obstacles:
            return None
        rank = Decoder(model, runtime, comm, _META, range(model.num_layers))
        EncoderWeights(model.encoder.weights if model.encoder else (), comm, torch.bfloat16, _META)
    except ConfigError:
        return None
    return sum(one.nbytes for one in rank.parameters())


@pytest.mark.parametrize(("name", "section"), taken((name, one) for name in HELD for one in HELD[name]))
def test_a_rank_holds_as_many_bytes_as_sglangs_own_class(name: str, section: str) -> None:
    """Which are those of an H200, and of a B200 the same."""
    for tp, held in HELD[name][section].items():
        ends = isinstance(held, str) or (name, section, tp) in REFUSED
        for major in (9, 10):
            assert _held(name, section, int(tp), major) == (None if ends else held[0]), (tp, major)


_FIRST, _QKV = "model.layers.0.", [f"model.layers.0.self_attn.{one}_proj" for one in "qkv"]
_GEMMA, _PHI = "google/gemma-3n-E4B-it", "microsoft/Phi-4-multimodal-instruct"
_EARS = ["lm_head", *(f"re:.*{one}.*" for one in ("altup", "laurel", "embed_", "tower"))]
_GATES = [
    f"model.language_model.{one}" for one in ("per_layer_model_projection", "layers.0.per_layer_input_gate")
]
_TOWER, _JOINS = "vision_model", "vit_large_projector"
_FLASH, _HY4 = "a/glm-5.3-flash-as-its-classes-have-it", "a/hy4-preview-as-its-classes-have-it"
_WITHIN = "model.language_model.layers."


@pytest.mark.parametrize(
    ("name", "section", "told", "said"),
    [
        ("internlm/internlm2_5-7b", "fp8 blocks", {}, "takes model.layers.0.attention.wqkv apart by rows"),
        (
            "internlm/internlm2_5-7b",
            "fp8 a row",
            {"ignore": ["lm_head", f"{_FIRST}feed_forward.w1", f"{_FIRST}feed_forward.w3"]},
            "feed_forward.w1 is plain in the file, and not so in SGLang's class",
        ),
        ("a/sdar-8b-from-memory", "int4", {"ignore": _QKV}, "self_attn.q_proj is plain in the file"),
        ("bigcode/starcoder2-7b", "int4", {"ignore": _QKV}, "self_attn.q_proj is plain in the file"),
        *(
            (name, "int4", {"ignore": _QKV}, "self_attn.q_proj is plain in the file")
            for name in (
                "internlm/internlm3-8b-instruct",
                "IQuestLab/IQuest-Coder-V1-40B-Instruct",
                "swiss-ai/Apertus-8B-Instruct-2509",
            )
        ),
        (_GEMMA, "int4", {"ignore": ["lm_head"]}, "no list means model.embed_vision.embedding_projection"),
        (_GEMMA, "int4", {"ignore": [*_EARS, f"{_FIRST}mlp.down_proj"]}, "mlp.down_proj is told apart"),
        (_PHI, "int4", {"ignore": ["lm_head", "re:.*o_proj"]}, "o_proj is told apart"),
        (
            "stepfun-ai/Step3-VL-10B",
            "fp8",
            {"modules_to_not_convert": [_TOWER, _JOINS, f"{_FIRST}self_attn.o_proj"]},
            "self_attn.o_proj is told apart: SGLang's class has another name for it",
        ),
        ("stepfun-ai/Step3-VL-10B", "fp8", {"modules_to_not_convert": [_TOWER]}, f"no list means {_JOINS}."),
        (
            "a/spark-2.5-of-the-sizes-of-its-class",
            "int4",
            {"ignore": ["lm_head"]},
            "g_proj is quantized in the",
        ),
        (_FLASH, "awq", {"modules_to_not_convert": ["visual", f"{_WITHIN}0.self_attn"]}, "is told apart"),
        (
            "a/lfm2-1.2b-beside-a-siglip-2",
            "fp8",
            {"modules_to_not_convert": ["model.language_model.layers.0.conv.in_proj"]},
            "conv.in_proj is told apart",
        ),
    ],
)
def test_what_sglangs_class_calls_otherwise_or_cannot_load_is_named(
    name: str, section: str, told: dict[str, Any], said: str
) -> None:
    (obstacle,) = Checkpoint(_told(name, section, told)).model_config().obstacles
    assert said in obstacle


# By its own load_weights and create_weights, of the last of two ranks.
@pytest.mark.parametrize(
    ("name", "section", "told", "held"),
    [
        ("internlm/internlm2_5-7b", "awq", {"modules_to_not_convert": ["wqkv"]}, 833429504),
        ("internlm/internlm2_5-7b", "gptq", {"dynamic": {"-:.*wqkv.*": {}}}, 833482752),
        ("internlm/internlm2_5-7b", "fp8 a row", {"ignore": ["re:.*feed_forward.*"]}, 955305984),
        ("a/sdar-8b-from-memory", "fp8 a row", {"ignore": ["re:.*self_attn.*"]}, 1362190848),
        ("a/sdar-8b-from-memory", "fp8", {"modules_to_not_convert": _QKV}, 1353736720),
        ("bigcode/starcoder2-7b", "awq", {"modules_to_not_convert": ["c_fc"]}, 345845248),
        ("Qwen/Qwen-7B", "awq", {"modules_to_not_convert": ["attn.c_proj"]}, 1309685760),
        ("LGAI-EXAONE/EXAONE-3.0-7.8B-Instruct", "fp8", {"modules_to_not_convert": ["mlp"]}, 1036017680),
        ("a/glm-4-9b-chat-from-memory", "fp8 a row", {"ignore": ["re:.*dense_h_to_4h"]}, 1399657984),
        (_GEMMA, "int4", {"ignore": [*_EARS, *_GATES]}, 1593503984),
        ("bigcode/starcoder2-7b", "modelopt fp8", {"ignore": ["lm_head", "*o_proj"]}, 345734696),
        (_FLASH, "fp8", {"modules_to_not_convert": ["model.visual", f"{_WITHIN}0.self_attn"]}, 8911175144),
        (_FLASH, "modelopt fp8", {"ignore": ["lm_head", "*visual*", f"{_WITHIN}1.mlp*"]}, 12478298616),
        (_HY4, "fp8 blocks", {"modules_to_not_convert": [f"{_FIRST}self_attn", "linear_gate"]}, 2571828860),
    ],
)
def test_a_list_means_what_it_means_to_sglangs_class(
    name: str, section: str, told: dict[str, Any], held: int
) -> None:
    model, comm = Checkpoint(_told(name, section, told)).model_config(), _rank(2)
    rank = Decoder(model, RuntimeConfig(), comm, _META, range(model.num_layers))
    assert not model.obstacles and sum(one.nbytes for one in rank.parameters()) == held


@pytest.mark.parametrize(
    ("section", "held"),
    [("fp8", 110140), ("fp8 a tensor", 110336), ("modelopt fp8", 110336), ("fp8 blocks", None)],
)
def test_what_a_mixer_runs_as_one_is_of_as_many_parts_as_sglangs_class_says(
    section: str, held: int | None
) -> None:
    """By Qwen3NextForCausalLM, of the last of two ranks: a scale a part, and blocks that fit none."""
    told = {**served_json(make_reference("qwen3_next")), "quantization_config": SECTIONS[section]}
    model, comm = Checkpoint({**told, "dtype": "bfloat16"}).model_config(), _rank(2)
    if held is None:
        with pytest.raises(ConfigError, match="16 rows of a matrix, no multiple of the 128"):
            Decoder(model, RuntimeConfig(), comm, _META, range(model.num_layers))
    else:
        rank = Decoder(model, RuntimeConfig(), comm, _META, range(model.num_layers))
        assert sum(one.nbytes for one in rank.parameters()) == held


@pytest.mark.parametrize(
    ("name", "tp", "held"),
    [
        ("a/sdar-8b-from-memory", 8, 325132800),
        ("Qwen/Qwen-7B", 2, 1303195648),
        ("Qwen/Qwen-7B", 8, None),  # of 1376 columns
    ],
)
def test_shares_of_awqs_matrices_are_whole_tiles_of_its_kernel(name: str, tp: int, held: int | None) -> None:
    model, layers = Checkpoint(_told(name, "awq", {"group_size": 32})).model_config(), range(1)
    if held is None:
        with pytest.raises(
            ConfigError, match="1376 columns of a matrix, no multiple of the 128 of a kernel's"
        ):
            Decoder(model, RuntimeConfig(), _rank(tp), _META, layers)
    else:
        rank = Decoder(model, RuntimeConfig(), _rank(tp), _META, layers)
        assert sum(one.nbytes for one in rank.parameters()) == held


_GPTQ = {"quant_method": "gptq", "bits": 4, "group_size": 32, "desc_act": False, "sym": True}


@pytest.mark.parametrize(
    ("family", "section", "held"),
    [
        ("mixtral", _GPTQ, 144000),
        ("mixtral", SECTIONS["modelopt nvfp4"], 131456),
        ("mixtral", SECTIONS["modelopt fp8"], 206720),
        ("mixtral_quant", SECTIONS["fp8 a row"], 216192),
        ("mixtral_quant", SECTIONS["fp8"], 206592),
        ("mixtral_quant", {**SECTIONS["awq"], "group_size": 32}, 133888),
    ],
)
def test_mixtrals_experts_are_those_of_the_class_that_a_format_is_for(
    family: str, section: dict[str, Any], held: int
) -> None:
    """Fused where Marlin multiplies by them, as servers run GPTQ's, and whole in ModelOpt's formats, or where
    a file names that class."""
    told = {**served_json(make_reference(family)), "dtype": "bfloat16", "quantization_config": section}
    model, comm = Checkpoint(told).model_config(), VirtualCommunicator(ParallelConfig(), 0)
    rank = Decoder(model, RuntimeConfig(), comm, _META, range(model.num_layers))
    assert not model.obstacles and sum(one.nbytes for one in rank.parameters()) == held


def _told(name: str, section: str, told: dict[str, Any]) -> dict[str, Any]:
    config = config_of(name, section)
    return {**config, "quantization_config": {**config["quantization_config"], **told}}


def _rank(tp: int) -> VirtualCommunicator:
    return VirtualCommunicator(ParallelConfig(tp=tp), tp - 1)


def test_every_format_is_asked_of_every_family() -> None:
    assert HELD.keys() == FIRST.keys() and all(one.keys() == SECTIONS.keys() for one in HELD.values())
