"""Fused kernels on a GPU against their references: values, and that they allocate what a prediction says."""

from pathlib import Path

import pytest
import torch

from runtime.forward.kv_packing import FP8_MAX
from runtime.layers.mlp import silu_and_mul
from runtime.layers.norm import add_rms_norm_, rms_norm, rms_norm_
from runtime.layers.rope import rope_
from runtime.layers.scaled_linear import fp8_block_linear, fp8_tensor_linear

if not torch.cuda.is_available():
    pytest.skip("needs a GPU", allow_module_level=True)

CUDA = torch.device("cuda")


def _random(*shape: int, dtype: torch.dtype = torch.bfloat16) -> torch.Tensor:
    generator = torch.Generator(CUDA).manual_seed(sum(shape))
    return torch.randn(shape, generator=generator, device=CUDA, dtype=dtype)


def _close(got: torch.Tensor, want: torch.Tensor, relative: float = 0.01) -> None:
    difference = (got.float().cpu() - want.float().cpu()).norm() / want.float().cpu().norm()
    assert difference < relative, f"relative error {difference:.4f}"


@pytest.mark.parametrize("rows", [1, 37, 2048])
@pytest.mark.parametrize("size", [64, 128, 2048, 6144, 7168])
def test_rms_norms_equal_the_cpus(rows: int, size: int) -> None:
    x, residual, weight = _random(rows, size), _random(rows, size) * 2, _random(size)
    _close(rms_norm(x, weight, 1e-6), rms_norm(x.cpu(), weight.cpu(), 1e-6))
    want_x, want_residual = x.cpu(), residual.cpu()
    add_rms_norm_(want_x, want_residual, weight.cpu(), 1e-6)
    add_rms_norm_(x, residual, weight, 1e-6)
    _close(x, want_x)
    _close(residual, want_residual)


def test_heads_inside_a_fused_projection_are_normalized_in_place() -> None:
    fused, weight = _random(33, 6 * 128), _random(128)
    q, rest = fused.split([4 * 128, 2 * 128], dim=-1)
    untouched = rest.clone()
    want = q.cpu().unflatten(-1, (4, 128)).clone()
    rms_norm_(want, weight.cpu(), 1e-6)
    rms_norm_(q.unflatten(-1, (4, 128)), weight, 1e-6)
    _close(q.unflatten(-1, (4, 128)), want)
    assert torch.equal(rest, untouched)


@pytest.mark.parametrize("interleaved", [False, True])
def test_rotary_embedding_equals_the_cpus(interleaved: bool) -> None:
    q, k, table = _random(33, 8, 192), _random(33, 1, 64), _random(512, 64, dtype=torch.float32)
    positions = torch.randint(512, (33,), device=CUDA)
    want_q, want_k = q.cpu(), k.cpu()
    rope_(want_q[..., 128:], want_k, table.cpu(), positions.cpu(), interleaved)
    rope_(q[..., 128:], k, table, positions, interleaved)
    _close(q, want_q)
    _close(k, want_k)


@pytest.mark.parametrize("size", [96, 1536, 18432])
def test_silu_and_mul_equals_the_cpus(size: int) -> None:
    x = _random(65, 2 * size)
    _close(silu_and_mul(x), silu_and_mul(x.cpu()))


@pytest.mark.parametrize("rows", [1, 16, 33, 300])
@pytest.mark.parametrize(("outputs", "inputs"), [(576, 7168), (2624, 6144), (256, 2048), (512, 300)])
def test_block_fp8_products_equal_the_cpus(rows: int, outputs: int, inputs: int) -> None:
    x, weight = _random(rows, inputs), _random(outputs, inputs).to(torch.float8_e4m3fn)
    scale = torch.rand(-(-outputs // 128), -(-inputs // 128), device=CUDA) + 0.5
    want = fp8_block_linear(x.cpu(), weight.cpu(), scale.cpu(), None, (128, 128))
    _close(fp8_block_linear(x, weight, scale, None, (128, 128)), want, 0.04)


def test_tensor_fp8_products_equal_the_cpus() -> None:
    x, weight = _random(64, 512), _random(256, 512).to(torch.float8_e4m3fn)
    scale, input_scale = torch.tensor([0.5], device=CUDA), x.abs().max().float()[None] / FP8_MAX
    want = fp8_tensor_linear(x.cpu(), weight.cpu(), scale.cpu(), input_scale.cpu(), None)
    _close(fp8_tensor_linear(x, weight, scale, input_scale, None), want, 0.04)


def test_workspaces_are_as_declared() -> None:
    x, weight = _random(2048, 6144), torch.empty(4096, 6144, device=CUDA, dtype=torch.float8_e4m3fn)
    scale = torch.ones(32, 48, device=CUDA)
    arguments = {"x": x, "weight": weight, "scale_inv": scale, "bias": None, "block": (128, 128)}
    fp8_block_linear(*arguments.values())
    before = torch.cuda.memory_allocated()
    torch.cuda.reset_peak_memory_stats()
    out = fp8_block_linear(*arguments.values())
    declared = sum(fp8_block_linear.meanwhile(*arguments.values()))
    assert torch.cuda.max_memory_allocated() - before == pytest.approx(declared + out.nbytes, abs=2048)


FAMILIES = ("llama", "qwen3", "qwen3_moe", "mixtral", "gpt_oss", "deepseek_v3", "qwen3_next", "nemotron_h")


@pytest.mark.parametrize("family", FAMILIES)
def test_decoders_on_a_gpu_answer_as_transformers_does(family: str, tmp_path: Path) -> None:
    pytest.importorskip("transformers")
    from tests.runtime.families import make_reference, prompts, reference_logits, save
    from tests.runtime.generation import alone

    model = make_reference(family)
    generation = alone(save(model, tmp_path), CUDA, dtype="bfloat16")
    [text] = prompts(23)
    got = torch.stack(generation.run([text], steps=6)[0]).float().cpu()
    want = reference_logits(model, text)[-7:].float().cpu()
    of_rows = (got - want).norm(dim=1) / want.norm(dim=1)
    assert of_rows.median() < 0.03, of_rows  # in bf16 a row may choose another expert
