"""Every family's layers on a GPU, in fp32: what transformers answers, eager and through graphs."""

from __future__ import annotations

import os
import random
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from types import MappingProxyType
from typing import Any

import pytest
import torch
import transformers

if not torch.cuda.is_available():
    pytest.skip("needs a GPU", allow_module_level=True)

from runtime.devices.base import Device
from runtime.devices.cuda import Cuda
from runtime.forward.batch import make_decode_batch, make_extend_batch
from runtime.forward.logits_processor import LogitsOutput
from runtime.server.errors import ConfigError
from runtime.server.recurrent import StateRules
from runtime.start.model_runner import ModelRunner
from sgl_tune.deployment.models import find_model
from sgl_tune.errors import UsageError
from tests.runtime.families import FAMILIES, WRAPPED, make_reference, prompts, reference_logits, save
from tests.runtime.random_models import draw, own_error
from tests.runtime.starts import make_runner, make_runtime

# Whose classes mean other fields, or norm otherwise, before this transformers.
CHANGED = {"granitemoehybrid", "longcat_flash", "glm5_next", "mamba2", "qwen4_exp", "qwen4_exp_text"}
SINCE = (5, 23)
NAMES = sorted({*FAMILIES, *WRAPPED})
# On a GPU a request sees all of its tokens, and no n-grams of the host's memory.
SEEN = {
    "glm5_next": {"index_topk": 128},
    **{name: {"indexer_budget": 128, "ple_layer_ids": []} for name in ("qwen4_exp", "qwen4_exp_text")},
}
STEPS = 6
TEXTS = prompts(23, 9, 14)
COUNT = int(os.environ.get("SGL_TUNE_RANDOM_MODELS", "1"))
SEED = int(os.environ.get("SGL_TUNE_RANDOM_SEED", "1"))
NOTHING: Mapping[str, Any] = MappingProxyType({})
GRAPHS = {"prefill_graphs": (16, 64), "decode_graphs": (1, 4)}


@pytest.mark.parametrize("name", NAMES)
def test_a_family_answers_as_transformers_does(name: str, tmp_path: Path) -> None:
    runner, model = started(name, tmp_path, Cuda(), moe_runner_backend="triton", **GRAPHS)
    _check(runner, model, [reference_logits(model, text) for text in TEXTS])


@pytest.mark.parametrize("number", range(COUNT))
@pytest.mark.parametrize("name", NAMES)
def test_a_random_model_answers_as_transformers_does(name: str, number: int, tmp_path: Path) -> None:
    """Or is refused by name, on either side."""
    told = draw(name, random.Random(f"{name} {SEED} {number}"))
    try:
        runner, model = started(name, tmp_path, Cuda(), told, moe_runner_backend="triton", **GRAPHS)
    except (ConfigError, UsageError) as error:
        pytest.skip(f"refused by name: {error}")
    try:
        wants = [reference_logits(model, text) for text in TEXTS]
    except Exception as error:
        pytest.skip(f"transformers refused: {error}")
    _check(runner, model, wants)


def _check(runner: ModelRunner, model: Any, wants: Sequence[torch.Tensor]) -> None:
    """What one rounding decides, of keys or of experts, is not asked of another machine's sums."""
    wants = wants if runner.model.scores is not None else [one[-STEPS - 1 :] for one in wants]
    for eagerly in (True, False):
        rows = torch.stack(list(served(runner, TEXTS, eagerly)), dim=1)
        for got, want in zip(rows, wants, strict=True):
            apart = float((got - want).abs().max())
            if apart >= 1e-4 * max(1.0, float(want.abs().max())):
                own = own_error(model, TEXTS, wants)
                assert apart <= 2 * own, f"{'eager' if eagerly else 'through graphs'}: {apart:.1e}, {own:.1e}"


def started(  # type: ignore[no-untyped-def]
    name: str, folder: Path, device: Device, told: Mapping[str, Any] = NOTHING, **changes: object
):
    """A runner of the family's small model after its whole start, and transformers' of the same weights."""
    if name in CHANGED and tuple(map(int, transformers.__version__.split(".")[:2])) < SINCE:
        pytest.skip(f"transformers {transformers.__version__} has another {name}")
    try:
        model = make_reference(name, **{**told, **SEEN.get(name, {})})
    except AttributeError as error:
        if "module transformers has no attribute" not in str(error) and not told:
            raise
        pytest.skip(f"transformers {transformers.__version__}: {error}")
    except Exception as error:
        if not told:
            raise
        pytest.skip(f"transformers refused: {error}")
    save(model, folder)
    config = find_model(str(folder), {}).checkpoint.model_config()
    states = StateRules(conv_dtype="float32")
    runtime = make_runtime(dtype="float32", prefill_tokens=64, states=states, **changes)
    runner = make_runner(config, device, runtime=runtime, weights=folder)
    runner.start()
    return runner, model


def served(runner: ModelRunner, texts: Sequence[list[int]], eagerly: bool) -> Iterator[torch.Tensor]:
    """[texts, vocab] of a prefill and of each token decoded after it, or what whole texts are embedded as."""
    if runner.model.scores is not None:
        yield _embedded(runner, texts, eagerly)
        return
    requests = runner.kv.requests.allocate(len(texts))
    batch = make_extend_batch([text[:-STEPS] for text in texts], requests, runner.kv)
    for step in range(STEPS + 1):
        if step:
            before = [len(text) - STEPS + step - 1 for text in texts]
            new = [text[at] for text, at in zip(texts, before, strict=True)]
            batch = make_decode_batch(new, requests, runner.kv, before)
        whole = runner.dp_batch(batch, "eager")
        result = runner.forward_eager(whole) if eagerly else runner.forward(batch)
        assert isinstance(result, LogitsOutput) and result.next_token_logits is not None
        yield result.next_token_logits.float().cpu().clone()
    for request, text in zip(requests, texts, strict=True):
        runner.kv.release(request, len(text))


def _embedded(runner: ModelRunner, texts: Sequence[list[int]], eagerly: bool) -> torch.Tensor:
    requests = runner.kv.requests.allocate(len(texts))
    batch = make_extend_batch(list(texts), requests, runner.kv)
    result = runner.forward_eager(runner.dp_batch(batch, "eager")) if eagerly else runner.forward(batch)
    assert isinstance(result, LogitsOutput) and result.pooled is not None
    answer = result.pooled.float().cpu().clone()
    for request, text in zip(requests, texts, strict=True):
        runner.kv.release(request, len(text))
    return answer


@pytest.mark.parametrize(
    ("name", "told"),
    [
        ("qwen3_next", {"linear_num_key_heads": 4, "linear_num_value_heads": 4}),
        ("gigachat3_5", {"linear_num_key_heads": 4, "linear_num_value_heads": 4}),
        ("iquest_q1", {"num_attention_heads": 4, "num_key_value_heads": 4, "enable_sink_attention": True}),
        ("cohere2_moe", {"num_shared_experts": 0}),
    ],
)
def test_heads_that_share_nothing_and_experts_alone(name: str, told: dict[str, Any], tmp_path: Path) -> None:
    runner, model = started(name, tmp_path, Cuda(), told, moe_runner_backend="triton", **GRAPHS)
    _check(runner, model, [reference_logits(model, text) for text in TEXTS])
