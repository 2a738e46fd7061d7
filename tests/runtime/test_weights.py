"""What a rank holds, to the byte, and weights that no file was read for."""

import json
from pathlib import Path
from typing import Any

import pytest
import torch

from runtime.decoder.decoder import Decoder
from runtime.decoder.draft import DraftModel
from runtime.forward.comm import VirtualCommunicator
from runtime.layers.loading import fill_dummy
from runtime.layers.quantization import BlockFp8, Matrix, scheme_of
from runtime.layers.scaled_linear import dequantize_blocks, dequantize_fp4
from runtime.server.checkpoint import Checkpoint
from runtime.server.config import ModelConfig
from runtime.server.errors import ConfigError
from runtime.server.parallel import ParallelConfig, stage_layers
from runtime.server.quantized import Kind
from runtime.server.units import GIB
from runtime.simulate.allocator import CachingAllocator
from runtime.simulate.tracker import AllocationTracker
from tests.runtime.batches import make_extend_batch
from tests.runtime.configs import model_of, runtime_config
from tests.runtime.families import FAMILIES, config_json, make_reference, prompts, save, tensors
from tests.runtime.generation import alone, assert_answers_as, make_pool, make_runtime
from tests.runtime.starts import make_preset, preset

CPU, META = torch.device("cpu"), torch.device("meta")


def _make_decoder(model: ModelConfig, parallel: ParallelConfig, rank: int = 0, **flags: Any) -> Decoder:
    comm = VirtualCommunicator(parallel, rank)
    layers = stage_layers(model.num_layers, parallel, comm.layout.pp_rank)
    decoder = Decoder(model, runtime_config(moe_runner_backend="torch", **flags), comm, META, layers)
    decoder.load_dummy()
    return decoder


def _bytes(decoder: Decoder) -> int:
    return sum(parameter.nbytes for parameter in decoder.parameters())


@pytest.mark.parametrize("family", FAMILIES)
def test_one_rank_holds_the_models_parameters(family: str) -> None:
    reference = make_reference(family, vocab_size=128)
    model = model_of(config_json(reference))
    ours = _make_decoder(model, ParallelConfig())
    # Corrections are buffers there, and an embedding that is whole has no rows of padding.
    buffers = (one.numel() for name, one in reference.named_buffers() if name.endswith("correction_bias"))
    spare = 0 if model.vocabulary.whole else -model.vocabulary.size % 64 * model.hidden_size
    theirs = (p.numel() for p in tensors(reference).values())
    assert sum(parameter.numel() for parameter in ours.parameters()) == sum(theirs) + sum(buffers) + spare


@pytest.mark.parametrize(
    "parallel",
    [
        ParallelConfig(tp=8),
        ParallelConfig(tp=8, ep=8),
        ParallelConfig(tp=4, pp=2),
        ParallelConfig(tp=8, ep=2, pp=2),
    ],
)
def test_shards_add_up(parallel: ParallelConfig) -> None:
    """Qwen3-30B-A3B has 4 KV heads and 48 layers. Weights that every rank repeats count once."""
    model = make_preset("Qwen3-30B-A3B")
    total = _bytes(_make_decoder(model, ParallelConfig()))
    held = sum(_bytes(_make_decoder(model, parallel, rank)) for rank in range(parallel.world_size))
    layer = 2 * (2 * 2048 + 2 * 128 + 128 * 2048)  # norms and router
    kv = 2 * 2 * 2048 * 512  # of 8 ranks, two hold the same KV head
    repeated = 48 * layer * (parallel.tp - 1) + 2 * 2048 * (parallel.tp - 1)
    repeated += 48 * kv * (max(parallel.tp, 4) // 4 - 1)
    assert held == total + repeated


def test_dp_attention_repeats_attention_and_splits_the_rest() -> None:
    """The GLM deployment, with its published sizes."""
    parallel = ParallelConfig(tp=8, dp=8, enable_dp_attention=True)
    decoder = _make_decoder(make_preset("GLM-5.1-FP8"), parallel)
    sizes = dict.fromkeys(("experts", "attention", "indexer", "embedding", "head"), 0)
    for name, parameter in decoder.named_parameters():
        told = name.replace("mixer.indexer", "indexer").replace("mixer", "attention")
        if kind := next((kind for kind in sizes if kind in told), None):
            sizes[kind] += parameter.nbytes
    block = 1 + 4 / 128**2
    experts = 75 * 256 * 3 * 6144 * 2048 // 8 * block
    attention = 78 * (6144 * (2048 + 576) + 2048 * 64 * 256 + 512 * 64 * 448 + 64 * 256 * 6144)
    assert sizes["experts"] == experts
    assert sizes["attention"] == pytest.approx(attention * block, rel=1e-3)
    assert sizes["indexer"] / GIB == pytest.approx(0.75, abs=0.01)
    assert sizes["embedding"] == 154880 * 6144 * 2
    assert sizes["head"] == 154880 * 6144 * 2 // 8


@pytest.mark.parametrize(("family", "parts"), [("gemma3_text", 1), ("qwen3_next", 2), ("glm4_moe", 2)])
def test_some_embeddings_are_whole_under_dp_attention(family: str, parts: int) -> None:
    """Other models split their embeddings over the ranks of a group."""
    model = model_of(config_json(make_reference(family, vocab_size=128)))
    grouped = ParallelConfig(tp=4, dp=2, enable_dp_attention=True)
    for parallel, expected in ((grouped, parts), (ParallelConfig(tp=4), 1 if parts == 1 else 4)):
        embedding = _make_decoder(model, parallel).embedding
        assert embedding is not None and embedding.weight.shape[0] * expected == model.vocabulary.size


def _modelopt(algorithm: str) -> dict[str, Any]:
    return {"quantization_config": {"quant_method": "modelopt", "quant_algo": algorithm}}


@pytest.mark.parametrize(("algorithm", "bits"), [("FP8", 8), ("NVFP4", 4 + 8 / 16)])
def test_packed_experts_take_their_bits(algorithm: str, bits: float) -> None:
    decoder = _make_decoder(make_preset("Qwen3-30B-A3B", **_modelopt(algorithm)), ParallelConfig())
    experts = sum(p.nbytes for name, p in decoder.named_parameters() if "experts" in name)
    assert experts * 8 == pytest.approx(48 * 128 * 3 * 2048 * 768 * bits, rel=1e-5)


R1_FP4 = {
    "quant_algo": "NVFP4",
    "kv_cache_quant_algo": "FP8",
    "group_size": 16,
    "exclude_modules": ["lm_head", *(f"model.layers.{layer}.self_attn*" for layer in range(62))],
}


def _deepseek_fp4(**section: Any) -> ModelConfig:
    config = preset("DeepSeek-V3")
    del config["quantization_config"]
    file = {"quantization": {**R1_FP4, **section}}
    return model_of(Checkpoint(config, file).quantized)


def test_attention_that_modelopt_excludes_is_as_large_as_in_bf16() -> None:
    """nvidia/DeepSeek-R1-FP4, tp 8 and dp 8: 256 experts are divided, attention is whole on each rank."""
    parallel = ParallelConfig(tp=8, dp=8, enable_dp_attention=True)
    decoder = _make_decoder(_deepseek_fp4(), parallel)
    fp4 = 1 / 2 + 1 / 16  # half a byte, and a byte of scale for 16
    attention = 7168 * (1536 + 576) + 1536 * 128 * 192 + 512 * 128 * 256 + 128 * 128 * 7168
    experts, mlp = 58 * 257 * 3 * 7168 * 2048, 3 * 3 * 7168 * 18432
    router, tables = 58 * 256 * 7168, 129280 * 7168 * (1 + 1 / 8)
    whole = 2 * (61 * attention + router + tables) + fp4 * (experts + mlp) / 8
    absorbed, rope = 61 * 2 * 512 * 128 * 256, 163840 * 64 * 4
    assert (whole + absorbed + rope) / 1e9 == pytest.approx(73.5, abs=0.05)
    assert _bytes(decoder) == pytest.approx(whole, rel=2e-4)
    all_in_fp4 = _make_decoder(_deepseek_fp4(exclude_modules=["lm_head"]), parallel)
    assert _bytes(decoder) - _bytes(all_in_fp4) == pytest.approx((2 - fp4) * 61 * attention, rel=1e-4)


def test_a_list_of_routers_and_norms_changes_nothing() -> None:
    """Qwen's own fp8 checkpoints list these modules, which are never quantized."""
    fp8 = {"quant_method": "fp8", "weight_block_size": [128, 128]}
    steps = ("input_layernorm", "mlp.gate", "post_attention_layernorm", "self_attn.q_norm")
    listed = ["lm_head", *(f"model.layers.{layer}.{step}" for layer in range(48) for step in steps)]
    alike = [
        make_preset("Qwen3-30B-A3B", quantization_config=section)
        for section in (fp8, {**fp8, "modules_to_not_convert": listed})
    ]
    sizes = [_bytes(_make_decoder(model, ParallelConfig(tp=2))) for model in alike]
    layer = 128 * 3 * 2048 * 768 + 2 * 2048 * 4096 + 2 * 2048 * 512
    plain = 2 * (2 * 151936 * 2048 + 48 * 128 * 2048)
    one = _bytes(_make_decoder(alike[1], ParallelConfig()))
    assert sizes[0] == sizes[1]
    assert one == pytest.approx(48 * layer * (1 + 4 / 128**2) + plain, rel=1e-4)


def test_the_draft_layer_of_an_nvfp4_checkpoint_is_in_bf16() -> None:
    runtime = runtime_config(moe_runner_backend="torch")
    model = _deepseek_fp4(exclude_modules=["lm_head"])
    draft = DraftModel(model, runtime, VirtualCommunicator(ParallelConfig(tp=8, ep=8)), META)
    experts = sum(p.nbytes for name, p in draft.named_parameters() if ".experts." in name)
    assert experts == 2 * 256 // 8 * 3 * 7168 * 2048
    layer = (p.dtype for name, p in draft.named_parameters() if ".head." not in name)
    assert {*layer} == {torch.bfloat16, torch.float32}


def test_gpt_oss_is_padded_as_each_backend_pads_it() -> None:
    """One rank of eight has 360 of the 2880 inner columns."""

    def shape(backend: str, sm_major: int) -> tuple[int, ...]:
        runtime = runtime_config(moe_runner_backend=backend, sm_major=sm_major)
        made = scheme_of(Kind("mxfp4", group=32), make_preset("gpt-oss-120b"), runtime)
        matrix = Matrix((360, 360), 2880, True, experts=128)
        return tuple(made.create(matrix, torch.bfloat16, META)["weight"].shape)

    assert shape("triton", 9) == (128, 768, 1440)
    assert shape("flashinfer_mxfp4", 9) == (128, 720, 1536)
    assert shape("flashinfer_mxfp4", 10) == (128, 768, 1536)


def test_nvfp4_experts_are_padded_for_trtllm() -> None:
    """One rank of eight has 96 of the 768 inner columns."""
    runtime = runtime_config(moe_runner_backend="flashinfer_trtllm", sm_major=10)
    made = scheme_of(Kind("nvfp4"), make_preset("Qwen3-30B-A3B"), runtime)
    weight = made.create(Matrix((96, 96), 2048, True, experts=128), torch.bfloat16, META)["weight"]
    assert weight.shape == (128, 2 * 128, 1024)


def test_only_the_layers_that_are_named_are_plain() -> None:
    model = _deepseek_fp4(exclude_modules=["lm_head", "model.layers.1.self_attn*", "model.layers.2.mlp*"])
    decoder = _make_decoder(model, ParallelConfig(tp=8))
    parameters = decoder.named_parameters()
    packed = {name.rpartition(".")[0] for name, tensor in parameters if tensor.dtype == torch.uint8}
    plain = {f"layers.1.mixer.{one}" for one in ("down", "q_up", "kv_up", "out")}
    plain |= {"layers.2.mlp.mlp.up", "layers.2.mlp.mlp.down"}
    assert plain.isdisjoint(packed)
    assert {name.replace("layers.1", "layers.0").replace("layers.2", "layers.0") for name in plain} <= packed


@pytest.mark.parametrize(
    ("model", "tp", "said"),
    [
        ("GLM-5.1-FP8", 32, "64 rows of a matrix, no multiple of the 128 of blocks"),
        ("Qwen3-30B-A3B", 64, "the number of heads 32 cannot be split over 64 ranks"),
    ],
)
def test_half_a_block_or_half_a_head_is_refused(model: str, tp: int, said: str) -> None:
    with pytest.raises(ConfigError, match=said):
        _make_decoder(make_preset(model), ParallelConfig(tp=tp), rank=1)


# -- dummy weights ------------------------------------------------------------------------------------------


@pytest.mark.parametrize("dtype", [torch.bfloat16, torch.float32, torch.float8_e4m3fn, torch.uint8])
def test_dummies_are_filled_in_place(dtype: torch.dtype) -> None:
    weight = torch.empty(512, 512, dtype=dtype)
    tracker = AllocationTracker(CachingAllocator(), "cpu", log=True)
    with tracker:
        fill_dummy("weight", weight)
    assert tracker.log == []
    values = weight.float()
    assert values.isfinite().all() and values.std() > 0


def test_dummies_are_the_same_on_every_rank_and_differ_by_name() -> None:
    def fill(name: str) -> torch.Tensor:
        weight = torch.empty(64)
        fill_dummy(name, weight)
        return weight

    assert torch.equal(fill("a"), fill("a")) and not torch.equal(fill("a"), fill("b"))


@pytest.mark.parametrize("family", FAMILIES)
def test_a_dummy_model_decodes_to_finite_logits(family: str, tmp_path: Path) -> None:
    folder = save(make_reference(family), tmp_path)
    generation = alone(folder)
    generation.decoder.load_dummy()
    for rows in generation.run(prompts(7, 5), steps=2).values():
        assert torch.stack(rows).isfinite().all()


@pytest.mark.parametrize("algorithm", ["FP8", "NVFP4"])
def test_a_quantized_dummy_model_decodes_to_finite_logits(algorithm: str) -> None:
    model = model_of({**config_json(make_reference("qwen3_moe")), **_modelopt(algorithm)})
    comm = VirtualCommunicator(ParallelConfig())
    decoder = Decoder(model, make_runtime(), comm, CPU, range(model.num_layers))
    decoder.load_dummy()
    pool = make_pool(model, comm, range(model.num_layers), torch.float32, CPU)
    output = decoder(make_extend_batch(prompts(5), [1], pool), pool)
    assert output.next_token_logits is not None
    assert output.next_token_logits.isfinite().all() and output.next_token_logits.std() > 0


# -- quantised values ---------------------------------------------------------------------------------------


def _quantize_blocks(weight: torch.Tensor, block: int) -> tuple[torch.Tensor, torch.Tensor]:
    tiles = weight.unflatten(0, (-1, block)).unflatten(2, (-1, block))
    scale = tiles.abs().amax((1, 3)) / 448
    quantized = (tiles / scale[:, None, :, None]).to(torch.float8_e4m3fn)
    return quantized.flatten(2, 3).flatten(0, 1), scale


def _in_blocks(tensor: torch.Tensor, block: int) -> bool:
    """A matrix, and not one of a few rows, which no server quantizes."""
    return tensor.dim() >= 2 and not any(size % block for size in tensor.shape[-2:])


def _save_in_fp8(model: Any, folder: Path, block: int, excluded: tuple[str, ...] = ()) -> Path:
    """The folder of a block-quantised checkpoint; `model` keeps the same values in fp32."""
    from safetensors.torch import load_file, save_file

    plain = ("embed", "lm_head", "norm", "gate.weight", "weights_proj", "bias", *excluded)
    for name, parameter in model.named_parameters():
        if _in_blocks(parameter, block) and not any(part in name for part in plain):
            for matrix in parameter.data.view(-1, *parameter.shape[-2:]):
                quantized, scale = _quantize_blocks(matrix, block)
                matrix.copy_(dequantize_blocks(quantized, scale, [block, block]))
    save(model, folder)
    tensors = load_file(folder / "model.safetensors")
    for name in list(tensors):
        is_matrix = tensors[name].dim() == 2 and _in_blocks(tensors[name], block)
        if is_matrix and not any(part in name for part in plain):
            tensors[name], tensors[f"{name}_scale_inv"] = _quantize_blocks(tensors[name], block)
    save_file(tensors, folder / "model.safetensors")
    config = json.loads((folder / "config.json").read_text())
    config["quantization_config"] = {"quant_method": "fp8", "weight_block_size": [block, block]}
    if excluded:
        config["quantization_config"]["modules_to_not_convert"] = list(excluded)
    (folder / "config.json").write_text(json.dumps(config))
    return folder


def _fold_by_one_scale(model: Any) -> None:
    """In other blocks than of 128, what latents fold by is quantized anew."""
    for name, module in model.named_modules():
        if name.endswith("kv_b_proj"):
            scale = module.weight.abs().amax() / torch.finfo(torch.float8_e4m3fn).max
            module.weight.data = (module.weight.data / scale).to(torch.float8_e4m3fn).float() * scale


@pytest.mark.parametrize("family", ["qwen3_moe", "deepseek_v3", "glm_moe_dsa"])
def test_a_checkpoint_in_fp8_blocks_is_loaded_and_computed(family: str, tmp_path: Path) -> None:
    model = make_reference(family)
    folder = _save_in_fp8(model, tmp_path, block=8)
    _fold_by_one_scale(model)
    generation = alone(folder)
    scheme = generation.decoder.layers[1].mixer.out.scheme
    assert isinstance(scheme, BlockFp8) and scheme.block == (8, 8)
    assert_answers_as(model, generation, length=11, steps=3)


@pytest.mark.parametrize("family", ["qwen3_moe", "deepseek_v3"])
def test_matrices_excluded_from_fp8_blocks_stay_plain(family: str, tmp_path: Path) -> None:
    model = make_reference(family)
    plain = ("model.layers.0.self_attn", "model.layers.1.self_attn.o_proj")
    folder = _save_in_fp8(model, tmp_path, 8, excluded=plain)
    generation = alone(folder)
    first, second = (
        {name for name, tensor in layer.mixer.named_parameters() if tensor.dtype == torch.float8_e4m3fn}
        for layer in generation.decoder._stack[:2]
    )
    assert not first and second and "out.weight" not in second
    _fold_by_one_scale(model.model.layers[1])
    assert_answers_as(model, generation, length=11, steps=3)


def test_fp4_codes_are_dequantized_with_their_scales() -> None:
    codes = torch.tensor([[0x21, 0xF9]], dtype=torch.uint8)
    nvfp4 = dequantize_fp4(codes, torch.tensor([[2.0]]).to(torch.float8_e4m3fn), torch.tensor([0.5]))
    mxfp4 = dequantize_fp4(codes, torch.tensor([[126]], dtype=torch.uint8), None)
    assert nvfp4.tolist() == [[0.5, 1.0, -0.5, -6.0]]
    assert mxfp4.tolist() == [[0.25, 0.5, -0.25, -3.0]]
