"""Servers that end at what their drafts share with them."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from sgl_tune.deployment.options import ServerFlags
from sgl_tune.deployment.selection import select_deployments
from sgl_tune.keys.starts import server_ends
from tests.memory.checkpoints import published_config
from tests.runtime.families import make_reference
from tests.runtime.families.reference import served_json

LLAMA, MIXTRAL = "meta-llama/Llama-3.1-8B-Instruct", "mistralai/Mixtral-8x7B-Instruct-v0.1"
_QWEN = {
    "architectures": ["Qwen2ForCausalLM"],
    "model_type": "qwen2",
    "hidden_size": 896,
    "intermediate_size": 4864,
    "num_hidden_layers": 24,
    "num_attention_heads": 14,
    "num_key_value_heads": 2,
    "max_position_embeddings": 131072,
    "hidden_act": "silu",
    "torch_dtype": "bfloat16",
}


@pytest.mark.parametrize(
    ("words", "release", "ends"),
    [
        (151936, "0.5.23", True),
        (151936, "0.5.15", True),
        (151936, "0.5.14", False),
        (128256, "0.5.23", False),
    ],
)
def test_a_whole_draft_knows_as_many_words_as_its_target(
    tmp_path: Path, words: int, release: str, ends: bool
) -> None:
    (tmp_path / "config.json").write_text(json.dumps({**_QWEN, "vocab_size": words}))
    flags = {"speculative_algorithm": "STANDALONE", "speculative_draft_model_path": str(tmp_path)}
    found = select_deployments(
        ServerFlags(model_path=LLAMA, gpu="h200", sglang_version=release, **flags)  # type: ignore[arg-type]
    )
    told = server_ends(found[0]) or ""
    assert ("its draft has 151,936 tokens, and its target 128,256" in told) == ends


@pytest.mark.parametrize(
    ("algorithm", "ends"), [("EAGLE", True), ("EAGLE3", True), ("NGRAM", False), (None, False)]
)
def test_a_class_gives_its_draft_its_tables(tmp_path: Path, algorithm: str | None, ends: bool) -> None:
    config = published_config(MIXTRAL)
    (tmp_path / "config.json").write_text(json.dumps(config))
    for release in ("0.5.12", "0.5.23"):
        flags = ServerFlags(
            model_path=str(tmp_path), gpu="h200", sglang_version=release, speculative_algorithm=algorithm
        )
        told = server_ends(select_deployments(flags)[0]) or ""
        assert ("MixtralForCausalLM gives no draft its embedding" in told) == ends


@pytest.mark.parametrize(
    ("architecture", "algorithm", "draft", "release", "ends"),
    [
        ("Qwen2ForCausalLM", "EAGLE3", {}, "0.5.12", False),
        ("Qwen2ForCausalLM", "DFLASH", {}, "0.5.23", True),
        ("Qwen3ForCausalLM", "DFLASH", {}, "0.5.12", False),
        ("Glm4ForCausalLM", "EAGLE3", {}, "0.5.23", True),
        ("Glm4ForCausalLM", "EAGLE3", {"eagle_config": {"use_aux_hidden_state": False}}, "0.5.23", False),
        ("Glm4ForCausalLM", "EAGLE", {}, "0.5.23", False),
        ("ClassOfNobody", "EAGLE3", {}, "0.5.23", True),
    ],
)
def test_a_class_shows_a_draft_its_layers(
    tmp_path: Path, architecture: str, algorithm: str, draft: dict[str, object], release: str, ends: bool
) -> None:
    served, drafts = tmp_path / "served", tmp_path / "draft"
    draft = {"architectures": ["LlamaForCausalLMEagle3"], **draft}
    for folder, told in ((served, {"architectures": [architecture]}), (drafts, draft)):
        folder.mkdir()
        config = {**_QWEN, "vocab_size": 151936, **told}
        (folder / "config.json").write_text(json.dumps(config))
    flags = {"speculative_algorithm": algorithm, "speculative_draft_model_path": str(drafts)}
    found = select_deployments(
        ServerFlags(model_path=str(served), gpu="h200", sglang_version=release, **flags)  # type: ignore[arg-type]
    )
    assert ("what its layers make of tokens" in (server_ends(found[0]) or "")) == ends


def test_layers_that_are_shown_to_whoever_asks_are_no_drafts(tmp_path: Path) -> None:
    (tmp_path / "config.json").write_text(json.dumps({**_QWEN, "vocab_size": 151936}))
    for algorithm, layers, ends in (("EAGLE3", (), False), ("DFLASH", ("1", "5"), True)):
        command = ["sglang", "serve", "--model-path", str(tmp_path), "--speculative-algorithm", algorithm]
        command += ["--enable-return-aux-hidden-states"]
        command += ["--return-aux-hidden-state-layer-ids", *layers] if layers else []
        found = select_deployments(ServerFlags(gpu="h200", sglang_version="0.5.23"), command)[0]
        assert found.server.speculative is None and found.draft_deployment is None
        assert ("what its layers make of tokens" in (server_ends(found) or "")) == ends


@pytest.mark.parametrize(
    ("name", "told", "ends"),
    [
        ("moonshotai/Kimi-K2-Instruct", {}, "num_nextn_predict_layers is 0"),
        ("zai-org/GLM-4.6", {"num_nextn_predict_layers": None}, "num_nextn_predict_layers is not told"),
        ("zai-org/GLM-4.6", {"num_nextn_predict_layers": 2}, "num_nextn_predict_layers is 2"),
        ("zai-org/GLM-4.6", {}, None),
        ("meituan-longcat/LongCat-Flash-Chat", {}, None),
        ("Qwen/Qwen3-Next-80B-A3B-Instruct", {}, None),
    ],
)
def test_a_file_says_that_one_layer_drafts(
    tmp_path: Path, name: str, told: dict[str, int | None], ends: str | None
) -> None:
    """_initialize_nextn_conf of srt/models/deepseek_common, and load_weights of others; where weights are
    drawn nobody looks, and the draft's pool is as deep as the model."""
    config = published_config(name)
    (tmp_path / "config.json").write_text(json.dumps({**config, **told}))
    for load_format in ("auto", "dummy"):
        command = ["python", "-m", "sglang.launch_server", "--model-path", str(tmp_path), "--tp", "8"]
        command += ["--speculative-algorithm", "EAGLE", "--load-format", load_format, "--trust-remote-code"]
        found = select_deployments(ServerFlags(gpu="h200", sglang_version="0.5.16"), command=command)[0]
        said, ends_so = server_ends(found) or "", ends is not None and load_format == "auto"
        assert ("'s draft is of one layer" in said) == ends_so
        assert (str(ends) in said) == ends_so and (str(ends) in found.not_counted) == (ends is not None)


def test_a_pool_is_as_deep_as_a_file_says(tmp_path: Path) -> None:
    text = served_json(make_reference("ernie4_5_moe"))
    for told, named in ((1, False), (None, True), (2, True)):
        (tmp_path / "config.json").write_text(json.dumps({**text, "num_nextn_predict_layers": told}))
        flags = ServerFlags(model_path=str(tmp_path), gpu="h200", speculative_algorithm="EAGLE")
        found = select_deployments(flags)[0]
        assert ("num_nextn_predict_layers" in str(found.own_draft)) == named
        assert "num_nextn_predict_layers" not in (server_ends(found) or "")


@pytest.mark.parametrize(
    ("release", "asked", "ends"),
    [
        ("0.5.23", {"attention_backend": "torch_native"}, True),
        ("0.5.12", {"attention_backend": "torch_native"}, True),
        (
            "0.5.23",
            {"attention_backend": "torch_native", "speculative_draft_attention_backend": "fa3"},
            False,
        ),
        ("0.5.23", {"prefill_attention_backend": "torch_native", "decode_attention_backend": "fa3"}, True),
        (
            "0.5.23",
            {
                "prefill_attention_backend": "torch_native",
                "decode_attention_backend": "fa3",
                "speculative_attention_mode": "decode",
            },
            False,
        ),
        ("0.5.23", {"attention_backend": "triton"}, False),
    ],
)
def test_attention_that_no_draft_has(release: str, asked: dict[str, str], ends: bool) -> None:
    command = ["python", "-m", "sglang.launch_server", "--model-path", LLAMA]
    command += ["--speculative-algorithm", "EAGLE"]
    for name, value in asked.items():
        command += [f"--{name.replace('_', '-')}", value]
    found = select_deployments(ServerFlags(gpu="h200", sglang_version=release), command=command)[0]
    assert ("SGLang has no attention torch_native of a draft's" in (server_ends(found) or "")) == ends


@pytest.mark.parametrize(
    ("architecture", "flags", "ends"),
    [
        ("LlamaForCausalLMEagle3", (), False),
        ("LlamaForCausalLM", (), True),
        ("LlamaForCausalLM", ("--enable-multi-layer-eagle",), False),
    ],
)
@pytest.mark.parametrize("release", ["0.5.12", "0.5.23"])
def test_a_draft_of_eagle3s_has_a_class_that_is_asked_for_its_tokens(
    tmp_path: Path, release: str, architecture: str, flags: tuple[str, ...], ends: bool
) -> None:
    """As the authors of EAGLE3 publish theirs, whose class is of the layer that they are made of."""
    config = {**_QWEN, "model_type": "llama", "architectures": [architecture], "draft_vocab_size": 32000}
    (tmp_path / "config.json").write_text(
        json.dumps({**config, "num_hidden_layers": 1, "vocab_size": 128256})
    )
    command = ["python", "-m", "sglang.launch_server", "--model-path", LLAMA, *flags]
    command += ["--speculative-algorithm", "EAGLE3", "--speculative-draft-model-path", str(tmp_path)]
    [found] = select_deployments(ServerFlags(gpu="h200", sglang_version=release), command=command)
    assert ("LlamaForCausalLM is no class of EAGLE3's" in (server_ends(found) or "")) == ends


_EAGLE = {**_QWEN, "num_hidden_layers": 1, "architectures": ["Qwen2ForCausalLMEagle"], "vocab_size": 151936}


@pytest.mark.parametrize(
    ("release", "told", "ends"),
    [
        ("0.5.15", {}, "Qwen2ForCausalLMEagle ends at its first answer"),
        ("0.5.16", {}, ""),
        ("0.5.23", {}, ""),
        ("0.5.23", {"torch_dtype": "float16"}, "in float16, and what its target gives it in bfloat16"),
    ],
)
def test_eagles_draft_answers_what_its_target_gives_it(
    tmp_path: Path, release: str, told: dict[str, str], ends: str
) -> None:
    served, drafts = tmp_path / "served", tmp_path / "draft"
    for folder, config in ((served, {**_QWEN, "vocab_size": 151936}), (drafts, {**_EAGLE, **told})):
        folder.mkdir()
        (folder / "config.json").write_text(json.dumps(config))
    flags = {"speculative_algorithm": "EAGLE", "speculative_draft_model_path": str(drafts)}
    flags |= {"model_path": str(served), "sglang_version": release}
    [found] = select_deployments(ServerFlags(gpu="h200", **flags))  # type: ignore[arg-type]
    said = server_ends(found) or ""
    assert ends in said and bool(ends) == bool(said)
    assert "is predicted" in found.not_counted


@pytest.mark.parametrize(
    ("gpu", "algorithm", "ends"),
    [("b200", "EAGLE", True), ("h200", "EAGLE", False), ("b200", "NGRAM", False)],
)
def test_a_draft_on_fa3_has_its_gpus(gpu: str, algorithm: str, ends: bool) -> None:
    flags = {"speculative_algorithm": algorithm, "speculative_draft_attention_backend": "fa3"}
    command = ["python", "-m", "sglang.launch_server", "--model-path", "Qwen/Qwen3-30B-A3B"]
    for name, value in flags.items():
        command += [f"--{name.replace('_', '-')}", value]
    found = select_deployments(ServerFlags(gpu=gpu, sglang_version="0.5.23"), command=command)
    assert ("attention on fa3 has no kernels" in (server_ends(found[0]) or "")) == ends
