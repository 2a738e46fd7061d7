"""Servers that answer a prompt with one row: what transformers' own classes make of it."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
import torch
import torch.nn.functional as F
from safetensors.torch import load_file, save_file
from torch import nn

from runtime.devices.base import Device
from runtime.devices.cpu import Cpu
from runtime.forward.batch import ForwardBatch, ForwardMode, make_extend_batch
from runtime.forward.comm import VirtualCommunicator
from runtime.forward.logits_processor import LogitsOutput
from runtime.server.decoders.known import model_config
from runtime.server.decoders.scores import NORMAL_WEIGHTS
from runtime.server.embedders import BY_FLAG, OF_DECODERS
from runtime.server.errors import Unsupported
from runtime.server.parallel_config import ParallelConfig
from runtime.start.model_runner import ModelRunner
from sgl_tune.deployment.models import find_model
from sgl_tune.errors import UsageError
from tests.oracle.embedders import family_of
from tests.runtime.families import make_reference, prompts, save
from tests.runtime.families.reference import config_json, tensors
from tests.runtime.generation import Generation, make_runtime
from tests.runtime.starts import make_meta, make_qwen, make_runner
from tests.runtime.starts import make_runtime as start_runtime

_PREFIX = "model."
_HEADS = {"InternLM2ForRewardModel": "v_head", "LlamaForClassification": "classification_head"}


def _saved(name: str, folder: Path, **changes: Any) -> tuple[Any, nn.Module | None]:
    """The layers of a small model as a checkpoint of that class has them, and what scores their rows."""
    model = make_reference(family_of(name), **changes)
    generator = torch.Generator().manual_seed(3)
    width, labels = model.config.hidden_size, len(changes.get("id2label") or "12")
    scores = _scores(name, width, labels)
    held = {
        one: tensor for one, tensor in tensors(model).items() if not one.startswith(("lm_head", "output"))
    }
    if name in ("LlamaEmbeddingModel", "MistralModel", "Qwen3Model"):
        held = {one.removeprefix(_PREFIX): tensor for one, tensor in held.items()}
    for one, tensor in () if scores is None else scores.named_parameters():
        tensor.data.copy_(torch.randn(tensor.shape, generator=generator) * width**-0.5)
        held[f"{_HEADS.get(name, 'score')}.{one}"] = tensor.detach()
    folder.mkdir(exist_ok=True)
    save_file({one: tensor.contiguous() for one, tensor in held.items()}, folder / "model.safetensors")
    told = {**config_json(model), "architectures": [name], "classification_out_size": labels}
    (folder / "config.json").write_text(json.dumps(told))
    return model, scores


def _scores(name: str, width: int, labels: int) -> nn.Module | None:
    if "Reward" in name and "Qwen" in name:
        return nn.Sequential(nn.Linear(width, width), nn.ReLU(), nn.Linear(width, 1))
    if name == "InternLM2ForRewardModel":
        return nn.Linear(width, 1, bias=False)
    return nn.Linear(width, labels, bias="Qwen" in name) if "Classification" in name else None


def _pooled(folder: Path, texts: list[list[int]], **asked: Any) -> torch.Tensor:
    layout = ParallelConfig()
    generation = Generation(folder, layout, make_runtime(**asked), VirtualCommunicator(layout))
    requests = generation.pool.requests.allocate(len(texts))
    batch = make_extend_batch(texts, requests, generation.pool)
    output = generation.decoder(batch, generation.pool)
    assert output.next_token_logits is None and output.pooled is not None
    return output.pooled


@torch.no_grad()
def _wanted(model: Any, scores: nn.Module | None, texts: list[list[int]]) -> torch.Tensor:
    body = model.model if hasattr(model, "model") else model.reference.model
    rows = torch.stack([body(torch.tensor([text])).last_hidden_state[0, -1] for text in texts])
    found: torch.Tensor = F.normalize(rows, dim=-1) if scores is None else scores(rows)
    return found


@pytest.mark.parametrize("name", sorted((OF_DECODERS | BY_FLAG) - {NORMAL_WEIGHTS}))
def test_a_prompt_is_answered_with_its_last_row_or_what_that_scores(name: str, tmp_path: Path) -> None:
    changes = {"id2label": dict(enumerate("abc"))} if "Classification" in name else {}
    model, scores = _saved(name, tmp_path / "checkpoint", **changes)
    texts = prompts(17, 9, 13)
    got, want = _pooled(tmp_path / "checkpoint", texts), _wanted(model, scores, texts)
    assert got.shape == want.shape and want.std() > 0.05
    torch.testing.assert_close(got, want, atol=1e-4, rtol=0)


@torch.no_grad()
def test_every_second_score_counts_as_an_mlp_in_float16_says(tmp_path: Path) -> None:
    model, scores = _saved(NORMAL_WEIGHTS, tmp_path, id2label=dict(enumerate("abcdef")))
    width, generator = model.config.hidden_size, torch.Generator().manual_seed(4)
    selu = nn.SELU()
    parts = nn.Linear(width, width), selu, nn.Linear(width, width), selu, nn.Linear(width, 3)
    weighs = nn.Sequential(*parts).half()
    for one in weighs.parameters():
        one.copy_(torch.randn(one.shape, generator=generator) * width**-0.5)
    own = {f"weights.fc.{name}": one for name, one in weighs.named_parameters()}
    save_file({**load_file(tmp_path / "model.safetensors"), **own}, tmp_path / "model.safetensors")
    texts = prompts(17, 9, 13)
    rows = torch.stack([model.model(torch.tensor([text])).last_hidden_state[0, -1] for text in texts])
    assert scores is not None
    want = (scores(rows)[:, ::2] * weighs(rows.half())).sum(-1, keepdim=True)
    got = _pooled(tmp_path, texts)
    assert got.shape == want.shape and want.std() > 0.05
    torch.testing.assert_close(got, want, atol=2e-3, rtol=0)  # of float16


def test_labels_that_are_no_pairs_are_refused(tmp_path: Path) -> None:
    _saved(NORMAL_WEIGHTS, tmp_path, id2label=dict(enumerate("abc")))
    with pytest.raises(Unsupported, match="3 labels do not come in pairs"):
        model_config(json.loads((tmp_path / "config.json").read_text()))


@pytest.mark.parametrize("family", ["llama", "qwen2", "qwen3", "granite", "glm4", "phi3", "exaone4"])
def test_a_class_that_generates_embeds_where_it_is_told_to(family: str, tmp_path: Path) -> None:
    model = make_reference(family)
    texts = prompts(17, 9, 13)
    got = _pooled(save(model, tmp_path), texts, embeds=True)
    torch.testing.assert_close(got, _wanted(model, None, texts), atol=1e-4, rtol=0)


@pytest.mark.parametrize("name", ["LlamaForSequenceClassification", "Gemma2ForSequenceClassification"])
def test_it_scores_as_transformers_own_class_does(name: str, tmp_path: Path) -> None:
    """Which has no bias, and pads what it is given: a prompt at a time."""
    import transformers

    _saved(name, tmp_path / "checkpoint", id2label=dict(enumerate("abcd")))
    own = getattr(transformers, name).from_pretrained(tmp_path / "checkpoint", attn_implementation="eager")
    texts = prompts(12, 7)
    with torch.no_grad():
        own.config.pad_token_id = -1
        want = torch.cat([own.float().eval()(torch.tensor([text])).logits for text in texts])
    torch.testing.assert_close(_pooled(tmp_path / "checkpoint", texts), want, atol=1e-4, rtol=0)


def test_a_checkpoint_without_biases_of_scores_is_read(tmp_path: Path) -> None:
    """As transformers' class of a Qwen3 that scores writes it."""
    import transformers

    model = make_reference("qwen3", num_labels=3)
    own = transformers.Qwen3ForSequenceClassification(model.config).float().eval()
    own.config.pad_token_id = -1
    own.save_pretrained(tmp_path)
    text = prompts(12)
    with torch.no_grad():
        want = own(torch.tensor(text)).logits
    torch.testing.assert_close(_pooled(tmp_path, text), want, atol=1e-4, rtol=0)


def test_no_labels_at_all_are_refused(tmp_path: Path) -> None:
    _saved("Qwen3ForSequenceClassification", tmp_path)
    told = json.loads((tmp_path / "config.json").read_text())
    (tmp_path / "config.json").write_text(json.dumps({**told, "id2label": {}}))
    with pytest.raises(UsageError, match="id2label has is 0"):
        find_model(str(tmp_path), {})


def _started(device: Device, **asked: Any) -> ModelRunner:
    runner = make_runner(make_qwen(), device, runtime=start_runtime(embeds=True, decode_graphs=(), **asked))
    runner.start()
    return runner


def test_a_start_captures_no_decodes_and_tunes_with_prompts_of_a_token() -> None:
    seen: list[tuple[str, ForwardMode, bool]] = []
    runner = make_runner(make_qwen(), Cpu(), runtime=start_runtime(embeds=True, decode_graphs=()))
    own = runner.forward_eager

    def forward(batch: ForwardBatch) -> Any:
        seen.append(("eager", batch.mode, batch.num_requests == batch.num_tokens))
        return own(batch)

    runner.forward_eager = forward  # type: ignore[method-assign]
    runner.start()
    assert seen == [("eager", ForwardMode.EXTEND, True)]
    assert "decode graphs" not in [phase.name for phase in runner.recorder.phases]


def test_its_graphs_answer_as_eager_forwards_do() -> None:
    runner = _started(Cpu())
    requests = runner.kv.requests.allocate(2)
    batch = make_extend_batch(prompts(5, 8), requests, runner.kv)
    assert runner.prefill_graphs is not None and runner.prefill_graphs.can_run(batch)
    graphed, eager = runner.forward(batch), runner.forward_eager(batch)
    assert isinstance(graphed, LogitsOutput) and isinstance(eager, LogitsOutput)
    assert graphed.pooled is not None and eager.pooled is not None
    torch.testing.assert_close(graphed.pooled, eager.pooled, atol=1e-5, rtol=0)


def test_a_prediction_equals_the_start_that_a_cpu_counts() -> None:
    counted, predicted = _started(Cpu()), _started(make_meta())
    for one, other in zip(counted.recorder.phases, predicted.recorder.phases, strict=True):
        assert one.name == other.name
        assert one.peak_bytes == pytest.approx(other.peak_bytes, abs=1 << 13), one.name


@pytest.mark.parametrize(
    ("told", "said"), [({"num_labels": 10**18}, "num_labels is"), ({"num_labels": 0}, "num_labels is 0")]
)
def test_labels_without_end_are_refused(told: dict[str, Any], said: str, tmp_path: Path) -> None:
    _saved("Qwen3ForSequenceClassification", tmp_path)
    file = json.loads((tmp_path / "config.json").read_text())
    file = {name: value for name, value in file.items() if name not in ("id2label", "label2id")}
    (tmp_path / "config.json").write_text(json.dumps({**file, **told}))
    with pytest.raises(UsageError, match=said):
        find_model(str(tmp_path), {})
