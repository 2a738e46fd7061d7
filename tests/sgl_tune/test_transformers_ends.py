"""Servers without a class of SGLang's run transformers' layers: none is planned by others, and some end."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from runtime.server.class_releases import (
    BY_ITSELF,
    BY_SGLANG,
    TOLD_BY_ITSELF,
    TOLD_BY_SGLANG,
    class_since,
)
from runtime.server.decoders.served_classes import CLASSES
from runtime.server.version_number import number
from sgl_tune.deployment.deployment import Deployment
from sgl_tune.deployment.options import ServerFlags
from sgl_tune.deployment.resolve import resolve_deployment
from sgl_tune.deployment.selection import select_deployments
from sgl_tune.keys.plan import make_plan
from sgl_tune.keys.starts import never_starts
from tests.memory.checkpoints import published_config
from tests.memory.quantized import SECTIONS
from tests.oracle.embedders import RECORDED
from tests.oracle.published import published

_LLAMA = "meta-llama/Llama-3.1-8B-Instruct"


def _deployed(folder: Path, release: str, tp: int = 1, **told: Any) -> Deployment:
    (folder / "config.json").write_text(json.dumps({**published()[_LLAMA].config, **told}))
    flags = ServerFlags(model_path=str(folder), arch="sm90", sglang_version=release, tp=tp)
    return resolve_deployment(flags, environ={})


def _named(folder: Path, release: str, name: str, **told: Any) -> Deployment:
    return _deployed(folder, release, architectures=[f"{name}ForCausalLM"], model_type=name.lower(), **told)


def test_the_first_release_with_a_class_is_sglangs() -> None:
    told = json.loads(RECORDED.read_text())["forwards"]
    for name in sorted(CLASSES & told.keys()):
        assert class_since(name) == number(next(iter(told[name]))), name


@pytest.mark.parametrize(("table", "attends"), [(BY_SGLANG, True), (BY_ITSELF, False)])
def test_whom_transformers_classes_let_attend(table: dict[tuple[int, ...], str], attends: bool) -> None:
    """By the newest transformers: what is in neither by then is in the other table, too."""
    transformers = pytest.importorskip("transformers")
    later = set() if attends else {"DiffLlama", "Moshi", "Nemotron", "RecurrentGemma"}
    own = TOLD_BY_SGLANG if attends else TOLD_BY_ITSELF
    for name in {*" ".join((*table.values(), own)).split()} - later:
        found = getattr(transformers, f"{name}ForCausalLM", None)
        assert found is None or found.is_backend_compatible() is attends, name


@pytest.mark.parametrize(
    ("release", "name", "said"),
    [
        ("0.5.23", "Falcon", "lets nobody attend for it"),
        ("0.5.21", "Nemotron", "lets nobody attend for it"),
        ("0.5.22", "Nemotron", "do not pass on what SGLang attends with"),
        ("0.5.23", "Helium", None),
    ],
)
def test_transformers_classes_that_attend_by_themselves_end(
    release: str, name: str, said: str | None, tmp_path: Path
) -> None:
    why = never_starts(_named(tmp_path, release, name))
    assert why is None if said is None else why is not None and said in why


@pytest.mark.parametrize(
    ("name", "ranks", "said"),
    [
        ("Glm", 1, "splits GlmForCausalLM's matrices in a way that SGLang's layers do not know"),
        ("BitNet", 2, "transformers plans no ranks of BitNetForCausalLM: --tp-size 1"),
        ("BitNet", 1, None),
        ("Jais2", 2, None),
    ],
)
def test_ranks_are_as_transformers_plans_them(
    name: str, ranks: int, said: str | None, tmp_path: Path
) -> None:
    why = never_starts(_named(tmp_path, "0.5.23", name, tp=ranks))
    assert why is None if said is None else why is not None and said in why


@pytest.mark.parametrize(("ranks", "said"), [(8, None), (16, "8 KV heads cannot be divided among 16 ranks")])
def test_transformers_layers_copy_no_keys(ranks: int, said: str | None, tmp_path: Path) -> None:
    why = never_starts(_named(tmp_path, "0.5.23", "Helium", tp=ranks))
    assert why is None if said is None else why is not None and said in why


@pytest.mark.parametrize(("release", "said"), [("0.5.16", "before 0.5.17"), ("0.5.17", "")])
def test_a_release_without_the_class_has_none_of_its_layers(release: str, said: str, tmp_path: Path) -> None:
    found = _deployed(tmp_path, release, model_type="qwen3", architectures=["Qwen3Model"])
    assert (said in found.shape.unknown) if said else found.shape.model is not None


def test_a_class_that_nobody_has_ends(tmp_path: Path) -> None:
    own = {"AutoConfig": "its.BeamConfig"}
    why = never_starts(_named(tmp_path, "0.5.22", "Beam", auto_map=own))
    assert why == "neither SGLang 0.5.22 nor its transformers has a class BeamForCausalLM"
    assert never_starts(_named(tmp_path, "0.5.22", "Beam", auto_map={**own, "AutoModel": "its.Beam"})) is None


_SMOL = {"model_type": "smollm3", "architectures": ["SmolLM3ForCausalLM"]}


_IN_FP8 = {"quant_method": "fp8", "activation_scheme": "dynamic"}


@pytest.mark.parametrize(
    ("section", "said"),
    [
        (None, ""),
        ({**_IN_FP8, "modules_to_not_convert": ["lm_head", "model.layers.0.mlp"]}, ""),
        (SECTIONS["gptq"], ""),
        (
            {**_IN_FP8, "modules_to_not_convert": ["down_proj"]},
            "'down_proj' is listed: SGLang has lists begin",
        ),
        (SECTIONS["modelopt fp8"], "what modelopt_fp8 and its lists mean to transformers' layers"),
    ],
)
def test_layers_of_transformers_are_known_of_some_formats(
    section: dict[str, Any] | None, said: str, tmp_path: Path
) -> None:
    told = {} if section is None else {"quantization_config": section}
    found = _deployed(tmp_path, "0.5.23", **_SMOL, **told)
    assert never_starts(found) is None
    if said:
        assert said in str(found.shape.as_read.model.obstacles)
    else:
        assert found.model.by_transformers and not found.model.obstacles


@pytest.mark.parametrize(("method", "known"), [("fp8", True), ("w8a8_fp8", False)])
def test_what_a_server_quantizes_itself_is_known_of_layers_of_transformers_in_some_formats(
    method: str, known: bool, tmp_path: Path
) -> None:
    (tmp_path / "config.json").write_text(json.dumps({**published()[_LLAMA].config, **_SMOL}))
    command = f"python -m sglang.launch_server --model-path {tmp_path} --quantization {method}"
    (found,) = select_deployments(ServerFlags(gpu="h200", sglang_version="0.5.23"), (*command.split(),), None)
    said = "smollm3 does not go with quantized weights but a checkpoint's in fp8"
    assert found.shape.unknown == "" if known else said in found.shape.unknown


@pytest.mark.parametrize("of", ["int4", "fp8 a row"])
@pytest.mark.parametrize("release", ["0.5.12", "0.5.23"])
def test_compressed_tensors_kinds_are_no_targets_among_transformers_layers(
    release: str, of: str, tmp_path: Path
) -> None:
    why = never_starts(_deployed(tmp_path, release, **_SMOL, quantization_config=SECTIONS[of]))
    assert why is not None and "looks for compressed-tensors' Linear as model.Linear" in why


@pytest.mark.parametrize(
    ("flags", "said"),
    [
        ("--model-impl transformers", ""),
        ("--dp 2 --enable-dp-attention", "DP attention"),
        ("--pp-size 2", "--pp: what stages of transformers' layers keep"),
        ("--is-embedding", "--is-embedding: what transformers' layers make of a prompt"),
    ],
)
def test_where_layers_of_transformers_are_known(flags: str, said: str, tmp_path: Path) -> None:
    (tmp_path / "config.json").write_text(json.dumps({**published()[_LLAMA].config, **_SMOL}))
    command = f"python -m sglang.launch_server --model-path {tmp_path} --tp 2 {flags}"
    (found,) = select_deployments(ServerFlags(gpu="h200", sglang_version="0.5.23"), (*command.split(),), None)
    assert said in found.shape.unknown if said else found.model.by_transformers
    assert said or not found.not_modelled


def test_a_server_that_is_told_to_runs_transformers_layers() -> None:
    command = "python -m sglang.launch_server --tp 2 --model-path", _LLAMA, "--model-impl"
    asked = ServerFlags(gpu="b200", sglang_version="0.5.23")
    for told in ("auto", "transformers"):
        (found,) = select_deployments(asked, (*" ".join((*command, told)).split(),), None)
        assert found.model.by_transformers is (told == "transformers")
        assert not found.not_modelled and never_starts(found) is None


def _told(folder: Path, name: str, flags: str = "", **told: Any) -> Deployment:
    """A server that runs transformers' layers of a model that SGLang has a class of."""
    config = published()[name].config if "/" in name else published()[_LLAMA].config
    (folder / "config.json").write_text(json.dumps({**config, **told}))
    command = f"python -m sglang.launch_server --model-path {folder} --model-impl transformers {flags}"
    (found,) = select_deployments(ServerFlags(gpu="h200", sglang_version="0.5.23"), (*command.split(),), None)
    return found


@pytest.mark.parametrize(
    ("name", "flags", "said"),
    [
        ("StableLm", "", "lets nobody attend for it, and SGLang 0.5.23 is told to run it"),
        ("Falcon", "", "lets nobody attend for it, and SGLang 0.5.23 is told to run it"),
        ("Phi3", "", "in a way that SGLang's layers do not know"),
        ("GptOss", "--tp 2", "plans no ranks of GptOssForCausalLM"),
        ("GptOss", "", None),
        ("Llama", "--tp 16", "8 KV heads cannot be divided among 16 ranks"),
        ("Qwen3Moe", "--tp 8", None),
    ],
)
def test_where_servers_end_that_are_told_to_run_transformers_layers(
    name: str, flags: str, said: str | None, tmp_path: Path
) -> None:
    why = never_starts(_told(tmp_path, name, flags, architectures=[f"{name}ForCausalLM"]))
    assert why is None if said is None else why is not None and said in why


@pytest.mark.parametrize(
    ("name", "flags", "said"),
    [
        ("zai-org/GLM-4.5-Air", "", "glm4_moe does not go with --model-impl transformers"),
        ("Qwen/Qwen3-30B-A3B", "--tp 2 --ep 2", "qwen3_moe does not go with --ep or an all-to-all"),
        ("Qwen/Qwen3-30B-A3B", "--quantization fp8", "qwen3_moe does not go with quantized weights"),
        ("Qwen/Qwen3-30B-A3B", "--moe-runner-backend flashinfer_cutlass", ""),
        (_LLAMA, "--quantization fp8", "llama does not go with quantized weights"),
        ("Qwen/Qwen3-32B-FP8", "", "qwen3 does not go with quantized weights"),
        (_LLAMA, "--tp 2 --dp 2 --enable-dp-attention", "llama does not go with DP attention"),
        (_LLAMA, "--tp 2", ""),
    ],
)
def test_which_servers_are_known_that_are_told_to(name: str, flags: str, said: str, tmp_path: Path) -> None:
    found = _told(tmp_path, name, flags)
    assert said in found.shape.unknown if said else found.model.by_transformers


@pytest.mark.parametrize(
    ("flags", "said"),
    [("", ""), ("--attention-backend triton", "on fa3 or trtllm_mha"), ("--attention-backend fa3", "")],
)
def test_windows_of_transformers_layers_are_known_where_a_layer_alone_tells_them(
    flags: str, said: str, tmp_path: Path
) -> None:
    told = {"model_type": "cwm", "architectures": ["CwmForCausalLM"], "head_dim": 128}
    (tmp_path / "config.json").write_text(json.dumps({**published()[_LLAMA].config, **told}))
    command = f"python -m sglang.launch_server --model-path {tmp_path} --tp 2 {flags}"
    (found,) = select_deployments(ServerFlags(gpu="h200", sglang_version="0.5.23"), (*command.split(),), None)
    assert said in found.shape.unknown if said else found.model.by_transformers


_DOTS = "a/dots.llm1-142b-from-memory"


@pytest.mark.parametrize(
    ("flags", "said"),
    [
        ("--moe-runner-backend flashinfer_cutlass", ""),
        ("", ""),
        ("--ep 8", "--ep or an all-to-all: ranks of whole experts do not add up"),
        ("--moe-runner-backend flashinfer_trtllm", "others choose them by themselves"),
        ("--ep-num-redundant-experts 8", "experts that move"),
    ],
)
def test_where_experts_of_transformers_are_known(flags: str, said: str, tmp_path: Path) -> None:
    config = published_config(_DOTS)
    (tmp_path / "config.json").write_text(json.dumps(config))
    command = f"python -m sglang.launch_server --model-path {tmp_path} --tp 8 {flags}"
    (found,) = select_deployments(ServerFlags(gpu="b200", sglang_version="0.5.23"), (*command.split(),), None)
    assert said in found.shape.unknown if said else found.model.by_transformers
    assert said or bool(make_plan(found).target.ops) is ("cutlass" in flags)


@pytest.mark.parametrize(
    ("method", "said"), [("fp8", "gpt_neox does not go with weights in fp8"), ("gptq", "")]
)
def test_heads_whose_parts_are_one_matrix_are_not_known_in_fp8(
    method: str, said: str, tmp_path: Path
) -> None:
    config = published_config("a/pythia-6.9b-from-memory")
    section = {"quant_method": method, "bits": 4, "group_size": 128, "desc_act": False, "sym": True}
    (tmp_path / "config.json").write_text(json.dumps({**config, "quantization_config": section}))
    flags = ServerFlags(model_path=str(tmp_path), arch="sm90", sglang_version="0.5.23")
    found = resolve_deployment(flags, environ={})
    assert said in found.shape.unknown if said else found.model.by_transformers
