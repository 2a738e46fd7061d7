"""Servers that embed, on a GPU: what transformers' layers make of a prompt's last token."""

from __future__ import annotations

from pathlib import Path

import pytest
import torch
import torch.nn.functional as F

if not torch.cuda.is_available():
    pytest.skip("needs a GPU", allow_module_level=True)

from runtime.devices.cuda import Cuda
from runtime.forward.batch import make_extend_batch
from runtime.forward.logits_processor import LogitsOutput
from sgl_tune.deployment.models import find_model
from tests.runtime.families import make_reference, prompts, save
from tests.runtime.starts import make_runner, make_runtime


@pytest.mark.parametrize("family", ["llama", "qwen3", "granitemoe", "phimoe"])
def test_a_prompt_is_answered_with_its_last_row(family: str, tmp_path: Path) -> None:
    model = make_reference(family)
    folder = save(model, tmp_path)
    graphs = {"prefill_graphs": (16, 64), "decode_graphs": ()}
    asked = make_runtime(
        dtype="float32", moe_runner_backend="triton", embeds=True, prefill_tokens=64, **graphs
    )
    read = find_model(str(folder), {}).checkpoint.model_config()
    runner = make_runner(read, Cuda(), runtime=asked, weights=folder)
    runner.start()
    texts = prompts(23, 9, 14)
    batch = make_extend_batch(texts, runner.kv.requests.allocate(3), runner.kv)
    with torch.no_grad():
        rows = [model.model(torch.tensor([text])).last_hidden_state[0, -1] for text in texts]
    want = F.normalize(torch.stack(rows), dim=-1)
    assert runner.prefill_graphs is not None and runner.prefill_graphs.can_run(batch)
    for output in (runner.forward(batch), runner.forward_eager(batch)):
        assert isinstance(output, LogitsOutput) and output.pooled is not None
        torch.testing.assert_close(output.pooled.cpu(), want, atol=1e-4, rtol=0)
