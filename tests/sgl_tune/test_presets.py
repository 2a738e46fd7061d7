"""Model shapes and GPUs that come with the package."""

import pytest

from runtime.models.known import model_config
from runtime.server.config import ModelConfig
from runtime.server.errors import ConfigError
from runtime.server.gpus import CPU, GPUS, Chosen, find_gpu, gpu_for
from sgl_tune.deployment.deployment import find_model
from sgl_tune.deployment.model_files import presets
from sgl_tune.deployment.versions import Gpu, parse_gpus, visible

# layers, hidden, vocabulary, experts, top k, expert width; as published with the checkpoints
SHAPES = {
    "GLM-5.1-FP8": (78, 6144, 154880, 256, 8, 2048),
    "GLM-5.1": (78, 6144, 154880, 256, 8, 2048),
    "DeepSeek-V3": (61, 7168, 129280, 256, 8, 2048),
    "DeepSeek-V3.2": (61, 7168, 129280, 256, 8, 2048),
    "Qwen3-30B-A3B": (48, 2048, 151936, 128, 8, 768),
    "Qwen3-235B-A22B": (94, 4096, 151936, 128, 8, 1536),
    "gpt-oss-120b": (36, 2880, 201088, 128, 4, 2880),
    "gpt-oss-20b": (24, 2880, 201088, 32, 4, 2880),
    "Mixtral-8x7B": (32, 4096, 32000, 8, 2, 14336),
    "Llama-3.1-70B": (80, 8192, 128256, 0, 0, 0),
    "Llama-3.1-8B": (32, 4096, 128256, 0, 0, 0),
    "demo-moe": (4, 256, 4096, 8, 2, 256),
}


def _model(name: str) -> ModelConfig:
    return model_config(find_model(name, {}).checkpoint.quantized)


def test_every_preset_is_known_here() -> None:
    assert {preset.name for preset in presets()} == set(SHAPES)


@pytest.mark.parametrize("name", SHAPES)
def test_a_preset_has_the_shape_of_its_model(name: str) -> None:
    model = _model(name)
    moe = (model.moe.num_experts, model.moe.top_k, model.moe.intermediate_size) if model.moe else (0, 0, 0)
    shape = (model.num_layers, model.hidden_size, model.vocabulary.size, *moe)
    assert shape == SHAPES[name]


def test_glm_is_what_the_out_of_memory_case_needs() -> None:
    glm = _model("zai-org/GLM-5.1-FP8")
    assert (glm.max_position, glm.quantized.method, glm.quantized.block) == (202752, "fp8", (128, 128))
    assert glm.mla is not None and glm.mla.indexer is not None
    assert (glm.mla.cache_dim, glm.mla.indexer.top_k) == (576, 2048)
    assert glm.layer_kinds.count("dense") == 3
    assert _model("GLM-5.1").quantized.method is None


@pytest.mark.parametrize("spelling", ["openai/gpt-oss-120b", "OPENAI/GPT-OSS-120B", "gpt-oss-120b"])
def test_a_preset_answers_to_its_id_and_its_short_name_in_any_case(spelling: str) -> None:
    assert _model(spelling).num_layers == 36


def test_no_two_presets_answer_to_one_name() -> None:
    ids = [spelling.lower() for preset in presets() for spelling in (preset.name, *preset.hf_ids)]
    assert len(ids) == len(set(ids))


def test_an_unknown_gpu_lists_the_known_ones() -> None:
    with pytest.raises(ConfigError, match="no GPU named 'TPU'") as caught:
        find_gpu("TPU")
    assert "B200" in (caught.value.remedy or "")


def test_every_gpu_has_a_source_and_plausible_memory() -> None:
    for gpu in GPUS:
        assert gpu.source and gpu.arch.startswith("sm")
        assert 0.97 < gpu.usable_bytes / (gpu.memory_mib << 20) <= 1
    assert find_gpu("H200").usable_bytes == 150109880320


def test_a_gpu_is_chosen_by_name_or_architecture() -> None:
    assert gpu_for(None, "sm90").gpu.name == "H200" and "assumed" in (gpu_for(None, "sm90").assumed or "")
    assert gpu_for("rtx-pro 6000", None).gpu.arch == "sm120"
    assert gpu_for("NVIDIA H100 80GB HBM3", None).gpu.name == "H100"
    with pytest.raises(ConfigError, match="the H200 is sm90"):
        gpu_for("H200", "sm120")


def test_the_drivers_list_of_gpus_is_read() -> None:
    table = (
        "NVIDIA H200, 9.0, 143771, GPU-3ba2cf46-0001\n"
        "NVIDIA B200, 10.0, 183359, GPU-3ba2cf46-0002\n"
        "Graphics Device, [N/A], [N/A], [N/A]\n\ngarbage"
    )
    assert parse_gpus(table) == (
        Gpu("NVIDIA H200", "sm90", 143771, "3ba2cf46-0001"),
        Gpu("NVIDIA B200", "sm100", 183359, "3ba2cf46-0002"),
    )


@pytest.mark.parametrize(
    ("setting", "seen"),
    [
        (None, "0123"),
        ("2", "2"),
        ("3,0", "30"),
        (" 1 , 2 ", "12"),
        ("GPU-b2,GPU-a", "20"),
        ("1,-1,2", "1"),
        ("1,9,2", "1"),
        ("1,1", ""),
        ("1,GPU-a", "1"),
        ("GPU-b", ""),  # begins two
        ("MIG-a1", ""),
        ("", ""),
        ("none", ""),
    ],
)
def test_a_process_s_gpus_are_those_that_cuda_shows_it(setting: str | None, seen: str) -> None:
    gpus = tuple(Gpu(f"NVIDIA {n}", "sm90", 143771, uuid) for n, uuid in enumerate(("a1", "b1", "b2", "c1")))
    assert "".join(gpu.name[-1] for gpu in visible(gpus, setting)) == seen


@pytest.mark.parametrize(
    ("name", "reported", "arch", "mib"),
    [
        ("H100", "NVIDIA H100 80GB HBM3", "sm90", 81559),
        ("H100 NVL", "NVIDIA H100 NVL", "sm90", 95830),
        ("H200", "NVIDIA H200", "sm90", 143771),
        ("H200", "h200", "sm90", 143771),
        ("B300", "NVIDIA B300 SXM6 AC", "sm103", 275040),
        ("B200", "NVIDIA B200", "sm100", 183359),
        ("GB300", "NVIDIA GB300", "sm103", 284208),
        ("RTX PRO 6000", "NVIDIA RTX PRO 6000 Blackwell Server Edition", "sm120", 97887),
        ("A100 80GB", "NVIDIA A100-SXM4-80GB", "sm80", 81920),
        ("L40S", "NVIDIA L40S", "sm89", 46068),
    ],
)
def test_gpus_are_what_their_drivers_report(name: str, reported: str, arch: str, mib: int) -> None:
    found = find_gpu(reported)
    assert (found.name, found.arch, found.memory_mib) == (name, arch, mib) and find_gpu(name) == found


def test_the_gpu_that_is_here_is_taken_unless_another_is_asked_for() -> None:
    here = [find_gpu("H100"), find_gpu("B200")]
    assert gpu_for(None, None, here) == gpu_for(None, "sm90", here) == Chosen(find_gpu("H100"))
    assert gpu_for("H20", None, here) == Chosen(find_gpu("H20"))
    assert gpu_for(None, "cpu", here) == Chosen(CPU)
    other = gpu_for(None, "sm120", here)
    assert other.gpu == find_gpu("RTX PRO 6000") and other.assumed
