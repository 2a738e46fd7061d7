"""Every family against transformers on one rank: prefill, decode, chunks, both spellings of a checkpoint."""

from pathlib import Path
from typing import Any

import pytest
import torch

from runtime.forward.batch import LogitsMode
from tests.runtime.batches import make_extend_batch
from tests.runtime.families import FAMILIES, MOE_FAMILIES, make_reference, prompts, reference_logits, save
from tests.runtime.generation import alone, assert_answers_as

TOLERANCE = 1e-4


@pytest.mark.parametrize("family", FAMILIES)
def test_prefill_and_decode_agree(family: str, tmp_path: Path) -> None:
    model = make_reference(family)
    generation = alone(save(model, tmp_path))
    texts = prompts(19, 11, 15)
    rows = generation.run(texts, steps=5)
    for number, text in enumerate(texts):
        want = reference_logits(model, text)[-6:]
        assert want.std() > 0.3, "logits too flat to show a difference"
        torch.testing.assert_close(torch.stack(rows[number]), want, atol=TOLERANCE, rtol=0)


@pytest.mark.parametrize("family", ["qwen3_moe", "gpt_oss", "glm_moe_dsa", "qwen3_next", "nemotron_h"])
def test_a_prompt_in_chunks_is_the_prompt(family: str, tmp_path: Path) -> None:
    model = make_reference(family)
    generation = alone(save(model, tmp_path))
    [text] = prompts(20)
    got = []
    for start, stop in ((0, 9), (9, 13), (13, 20)):
        new = [text[start:stop]]
        batch = make_extend_batch(new, [1], generation.pool, [start], logits_mode=LogitsMode.ALL)
        output = generation.decoder(batch, generation.pool)
        assert output.full_logits is not None
        got.append(output.full_logits)
    torch.testing.assert_close(torch.cat(got), reference_logits(model, text), atol=TOLERANCE, rtol=0)


# Nemotron-H's checkpoints hold all experts in one tensor anyway.
@pytest.mark.parametrize("family", [name for name in MOE_FAMILIES if name != "nemotron_h"])
def test_fused_experts_load_like_single_ones(family: str, tmp_path: Path) -> None:
    from safetensors.torch import load_file

    model = make_reference(family)
    single = alone(save(model, tmp_path / "single"))
    fused = alone(save(model, tmp_path / "fused", save_original_format=False))
    (file,) = (tmp_path / "fused").glob("*.safetensors")
    assert any(name.endswith(".experts.gate_up_proj") for name in load_file(file))
    pairs = zip(single.decoder.named_parameters(), fused.decoder.named_parameters(), strict=True)
    for (name, one), (_, other) in pairs:
        assert torch.equal(one, other), name


@pytest.mark.parametrize(
    ("family", "changes"),
    [
        ("qwen3_moe", {"norm_topk_prob": False}),
        ("qwen3_moe", {"attention_bias": True}),
        ("deepseek_v3", {"n_shared_experts": 2}),
        ("mixtral", {"num_key_value_heads": 1}),
        ("gpt_oss", {"swiglu_limit": 1.0}),
        ("nemotron_h", {"moe_latent_size": None}),
    ],
)
def test_a_variant_answers_as_transformers(family: str, changes: dict[str, Any], tmp_path: Path) -> None:
    model = make_reference(family, **changes)
    assert_answers_as(model, alone(save(model, tmp_path)), length=9, steps=1)
