"""Every family's layers on a GPU, in fp32: what transformers answers, eager and through graphs."""

from collections.abc import Iterator
from pathlib import Path

import pytest
import torch

if not torch.cuda.is_available():
    pytest.skip("needs a GPU", allow_module_level=True)

from runtime.devices.cuda import Cuda
from runtime.models.known import model_config
from runtime.server.layer_config import StateRules
from runtime.start.model_runner import ModelRunner
from sgl_tune.deployment.deployment import find_model
from tests.runtime.batches import make_decode_batch, make_extend_batch
from tests.runtime.checkpoints import load
from tests.runtime.families import FAMILIES, make_reference, prompts, reference_logits, save
from tests.runtime.starts import eager_logits, make_runner, make_runtime, replayed_logits

STEPS = 6
TEXTS = prompts(23, 9, 14)


@pytest.mark.parametrize("name", FAMILIES)
def test_a_family_answers_as_transformers_does(name: str, tmp_path: Path) -> None:
    model = make_reference(name)
    config = model_config(find_model(str(save(model, tmp_path)), {}).checkpoint.quantized)
    runtime = make_runtime(
        dtype="float32",
        prefill_tokens=64,
        states=StateRules(conv_dtype="float32"),
        moe_runner_backend="triton",
        prefill_graphs=(16, 64),
        decode_graphs=(1, 4),
    )
    runner = make_runner(config, Cuda(), runtime=runtime)
    runner.start()
    load(runner.decoder, tmp_path)
    runner.capture_prefill()  # again: loading makes some tensors anew
    runner.capture_decode()
    for eagerly in (True, False):
        rows = torch.stack(list(_served(runner, eagerly)), dim=1)
        for got, text in zip(rows, TEXTS, strict=True):
            torch.testing.assert_close(got, reference_logits(model, text)[-STEPS - 1 :], atol=1e-4, rtol=1e-4)


def _served(runner: ModelRunner, eagerly: bool) -> Iterator[torch.Tensor]:
    """Return [texts, vocab] of a prefill and of each token decoded after it."""
    requests = range(1, len(TEXTS) + 1)
    batch = make_extend_batch([text[:-STEPS] for text in TEXTS], requests, runner.kv)
    for step in range(STEPS + 1):
        if step:
            before = [len(text) - STEPS + step - 1 for text in TEXTS]
            new = [text[at] for text, at in zip(TEXTS, before, strict=True)]
            batch = make_decode_batch(new, requests, runner.kv, before)
        yield (eager_logits if eagerly else replayed_logits)(runner, batch).float().cpu()
