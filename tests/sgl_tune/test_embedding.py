"""Servers that generate nothing: what is known of them, and which of them end."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from sgl_tune.deployment.deployment import Deployment
from sgl_tune.deployment.options import ServerFlags
from sgl_tune.deployment.resolve import resolve_deployment
from sgl_tune.deployment.selection import select_deployments
from sgl_tune.keys.starts import never_starts
from tests.memory.checkpoints import DATA
from tests.oracle.published import published
from tests.sgl_tune.running import run_here

_DENSE, _EXPERTS = "Qwen/Qwen3-32B", "Qwen/Qwen3-30B-A3B"
_LOOPED = "a/nanbeige-4.2-3b-from-memory"


def _folder(folder: Path, name: str, **changes: Any) -> Path:
    (folder / "config.json").write_text(json.dumps({**published()[name].config, **changes}))
    return folder


def _deployment(folder: Path, *more: str, release: str = "0.5.23") -> Deployment:
    command = ["sglang", "serve", "--model-path", str(folder), *more]
    return select_deployments(ServerFlags(gpu="H200", sglang_version=release), command)[0]


@pytest.mark.parametrize(
    ("architecture", "more"),
    [
        ("Qwen3ForCausalLM", ["--is-embedding"]),
        ("Qwen3ForSequenceClassification", []),
        ("Qwen3ForRewardModel", []),
        ("Qwen3Model", ["--is-embedding"]),
    ],
)
def test_it_captures_no_decodes(architecture: str, more: list[str], tmp_path: Path) -> None:
    found = _deployment(_folder(tmp_path, _DENSE, architectures=[architecture]), *more)
    assert found.server.embeds and found.runtime.embeds and found.server.decode_graphs == ()
    assert "generates nothing" in found.server.why["decode_graphs"]
    assert found.server.prefill_graphs and found.not_modelled == "" and never_starts(found) is None
    assert (found.model.scores is None) == (architecture == "Qwen3ForCausalLM")


_LLAMA, _NANBEIGE = "LlamaForClassification", "NanbeigeForSequenceClassification"


def _scoring(folder: Path, architecture: str, *more: str) -> Deployment:
    known = json.loads((DATA / "published_families.json").read_text())
    known[_LLAMA] = published()["meta-llama/Llama-3.1-8B-Instruct"].config
    told = known[_LLAMA if architecture == _LLAMA else _LOOPED]
    changes = {"architectures": [architecture], "classification_out_size": 5}
    (folder / "config.json").write_text(json.dumps({**told, **changes}))
    return _deployment(folder, *more)


@pytest.mark.parametrize("architecture", [_LLAMA, _NANBEIGE])
def test_classes_that_score_by_the_flag_alone_are_asked_for_logits_without_it(
    architecture: str, tmp_path: Path
) -> None:
    found = _scoring(tmp_path, architecture, "--is-embedding")
    assert found.server.embeds and found.not_modelled == "" and never_starts(found) is None
    assert found.model.scores is not None and not found.shape.unknown
    said = never_starts(_scoring(tmp_path, architecture))
    assert said is not None and f"{architecture} answers rows" in said and "--is-embedding" in said
    assert "quantized weights" in str(
        _scoring(tmp_path, architecture, "--is-embedding", "--quantization", "fp8").shape.unknown
    )
    staged = never_starts(_scoring(tmp_path, architecture, "--is-embedding", "--pp-size", "2"))
    assert staged is not None and "no pipeline stages" in staged


def test_how_much_a_llama_tells_apart_is_to_be_told(tmp_path: Path) -> None:
    _scoring(tmp_path, _LLAMA)
    told = json.loads((tmp_path / "config.json").read_text())
    del told["classification_out_size"]
    (tmp_path / "config.json").write_text(json.dumps(told))
    assert "classification_out_size is missing" in str(_deployment(tmp_path, "--is-embedding").shape.unknown)


@pytest.mark.parametrize("more", [["--pp-size", "2"], ["--tp", "2", "--dp", "2", "--enable-dp-attention"]])
def test_where_what_it_takes_is_not_known_its_line_says_so(more: list[str], tmp_path: Path) -> None:
    found = _deployment(_folder(tmp_path, _DENSE), "--is-embedding", *more)
    assert found.not_modelled == "not counting --is-embedding: not modelled"


def test_a_hybrid_that_embeds_is_told_to_be_not_known(tmp_path: Path) -> None:
    found = _deployment(_folder(tmp_path, "Qwen/Qwen3.5-35B-A3B"), "--is-embedding")
    assert never_starts(found) is None and "--is-embedding" in found.not_modelled


@pytest.mark.parametrize(("release", "ends"), [("0.5.22", True), ("0.5.23", False)])
def test_a_class_may_learn_to_embed(release: str, ends: bool, tmp_path: Path) -> None:
    wrapped = {"model_type": "mistral3", "architectures": ["Mistral3ForConditionalGeneration"]}
    found = _deployment(_folder(tmp_path, _DENSE, **wrapped), "--is-embedding", release=release)
    assert (never_starts(found) is not None) is ends


def test_a_server_whose_class_cannot_embed_is_bad(tmp_path: Path) -> None:
    folder = _folder(tmp_path, _EXPERTS)
    result = run_here(
        *("verify", "--gpu", "H200", "--sglang-version", "0.5.23", "--"),
        *("sglang", "serve", "--model-path", str(folder), "--is-embedding"),
    )
    assert result.code == 1, result.out
    assert "Qwen3MoeForCausalLM knows no embedding" in result.out


@pytest.mark.parametrize(
    ("more", "said"),
    [
        ({"quantization": "fp8"}, "quantized weights"),
        ({"tp": 2, "dp": 2, "enable_dp_attention": True}, "DP attention"),
        ({"sglang_version": "0.5.16"}, "before 0.5.17"),
    ],
)
def test_a_class_that_only_embeds_is_named_where_it_is_not_known(
    more: dict[str, Any], said: str, tmp_path: Path
) -> None:
    folder = _folder(tmp_path, _DENSE, architectures=["Qwen3Model"])
    told = {"gpu": "H200", "sglang_version": "0.5.23", "model_path": str(folder), **more}
    found = resolve_deployment(ServerFlags(**told), environ={})
    assert found.shape.model is None and said in found.shape.unknown


def test_classes_that_only_embed_have_no_stages(tmp_path: Path) -> None:
    found = _deployment(_folder(tmp_path, _DENSE, architectures=["Qwen3ForRewardModel"]), "--pp-size", "2")
    assert never_starts(found) is not None


_EMBEDDING_GEMMA = {
    **json.loads((DATA / "published_families.json").read_text())["google/embeddinggemma-300m"],
    "num_hidden_layers": 6,
    "layer_types": ["sliding_attention"] * 5 + ["full_attention"],
}


def _gemma(folder: Path, *more: str, gpu: str = "H200", release: str = "0.5.23") -> Deployment:
    (folder / "config.json").write_text(json.dumps(_EMBEDDING_GEMMA))
    command = ["sglang", "serve", "--model-path", str(folder), *more]
    return select_deployments(ServerFlags(gpu=gpu, sglang_version=release), command)[0]


@pytest.mark.parametrize(
    ("gpu", "release", "more", "ends"),
    [
        ("H200", "0.5.17", (), False),
        ("H200", "0.5.23", ("--is-embedding",), False),
        ("B200", "0.5.17", (), True),
        ("B200", "0.5.18", (), True),
        ("B200", "0.5.18", ("--attention-backend", "trtllm_mha"), False),
        ("B200", "0.5.19", (), False),
        ("H200", "0.5.23", ("--pp-size", "2"), True),
    ],
)
def test_embedding_gemma_ends_where_its_pool_of_nothing_is_written_to(
    gpu: str, release: str, more: tuple[str, ...], ends: bool, tmp_path: Path
) -> None:
    found = _gemma(tmp_path, *more, gpu=gpu, release=release)
    assert (never_starts(found) is not None) is ends
    assert found.shape.model is not None and "is-embedding" not in found.not_modelled


def test_before_0_5_17_embedding_gemma_is_named(tmp_path: Path) -> None:
    found = _gemma(tmp_path, release="0.5.16")
    assert found.shape.model is None and "before 0.5.17" in found.shape.unknown


def test_a_report_says_that_nobody_looked_at_embedding_gemmas_matrices(tmp_path: Path) -> None:
    assert "modules.json" in _gemma(tmp_path).not_counted
    (tmp_path / "modules.json").write_text("[]")
    assert "modules.json" not in _gemma(tmp_path).not_counted


def test_its_start_is_known_up_to_its_first_forward_and_its_pool_has_a_page(tmp_path: Path) -> None:
    _gemma(tmp_path)
    result = run_here(
        *("mem-report", "--gpu", "H200", "--sglang-version", "0.5.23", "--"),
        *("sglang", "serve", "--model-path", str(tmp_path)),
    )
    assert result.code == 1 and "PREDICTED UP TO eager buffers" in result.out
    assert "KV pool 21,878,501 tokens" in result.out and "kv pool                    0.19" in result.out


_FILES = json.loads((DATA / "published_families.json").read_text())


@pytest.mark.parametrize("release", ["0.5.12", "0.5.23"])
@pytest.mark.parametrize("name", ["BAAI/bge-m3", "BAAI/bge-reranker-v2-m3", "BAAI/bge-large-en-v1.5"])
def test_an_encoders_start_is_known_whole_as_it_runs_no_forward(
    name: str, release: str, tmp_path: Path
) -> None:
    (tmp_path / "config.json").write_text(json.dumps({**_FILES[name], "num_hidden_layers": 2}))
    result = run_here(
        *("mem-report", "--gpu", "H200", "--sglang-version", release, "--"),
        *("sglang", "serve", "--model-path", str(tmp_path)),
    )
    assert result.code == 0 and "FITS" in result.out, result.out
    assert "graphs" not in result.out.partition("Sizes:")[0]


@pytest.mark.parametrize(
    ("more", "said"),
    [
        (("--quantization", "w8a8_fp8"), "quantized weights"),
        (("--tp", "2", "--dp", "2", "--enable-dp-attention"), "DP attention"),
    ],
)
def test_an_encoder_is_named_where_it_is_not_known(more: tuple[str, ...], said: str, tmp_path: Path) -> None:
    (tmp_path / "config.json").write_text(json.dumps(_FILES["BAAI/bge-m3"]))
    command = ["sglang", "serve", "--model-path", str(tmp_path), *more]
    found = select_deployments(ServerFlags(gpu="H200", sglang_version="0.5.23"), command)[0]
    assert found.shape.model is None and said in found.shape.unknown


@pytest.mark.parametrize(("size", "ends"), [("1", False), ("2", True)])
def test_an_encoder_has_no_stages(size: str, ends: bool, tmp_path: Path) -> None:
    (tmp_path / "config.json").write_text(json.dumps(_FILES["BAAI/bge-reranker-v2-m3"]))
    command = ["sglang", "serve", "--model-path", str(tmp_path), "--pp-size", size, "--is-embedding"]
    found = select_deployments(ServerFlags(gpu="H200", sglang_version="0.5.23"), command)[0]
    assert (never_starts(found) is not None) is ends and not found.not_modelled
