"""Which parts of a pasted server command reach a start, and which are refused or left out by name."""

import json
import os
from pathlib import Path

import pytest

from runtime.sglang.command import Checked, Refused, checked
from runtime.sglang.flag_classes import DROPPED, REFUSED
from runtime.sglang.variables import left_out, passed
from sgl_tune.deployment.flag_names import flag_names


@pytest.fixture
def model(tmp_path: Path) -> Path:
    return model_folder(tmp_path / "model")


def model_folder(folder: Path, **config: object) -> Path:
    folder.mkdir()
    (folder / "config.json").write_text(json.dumps({"architectures": ["LlamaForCausalLM"], **config}))
    return folder


def check(model: Path, *words: str, trust: bool = False, **variables: str) -> Checked:
    return checked(["--model-path", str(model), *words], variables, trust_remote_code=trust)


def refused(model: Path, *words: str) -> str:
    """The line of a refusal, which has a way out."""
    with pytest.raises(Refused) as caught:
        check(model, *words)
    assert caught.value.remedy and len(caught.value.message.splitlines()) == 1
    return caught.value.message


def test_what_decides_sizes_is_passed_on_word_for_word(model: Path) -> None:
    words = ["--tp", "8", "--dp=8", "--enable-dp-attention", "--cuda-graph-bs", "1", "2", "4"]
    words += ["--chunked-prefill-size", "-1"]
    assert check(model, *words).argv == ("--model-path", str(model), *words)


def test_paths_become_absolute_as_starts_run_elsewhere(model: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(model.parent)
    (model / "scales.json").write_text("{}")
    words = ("--quantization-param-path", "model/scales.json")
    found = checked(["--model", "model", *words], {})
    assert found.argv == ("--model", str(model), "--quantization-param-path", str(model / "scales.json"))
    assert found.readable == (model, model / "scales.json")


def test_every_flag_of_the_core_is_known_by_its_whole_name(model: Path) -> None:
    for name in set(flag_names()) - REFUSED.keys():
        try:
            check(model, name, "1")
        except Refused as error:
            assert "is short for" not in error.message
            assert any(word in name for word in ("path", "model", "addr", "override", "lora")), error.message


RUNS = {"--custom-weight-loader", "--forward-hooks", "--sidecar"}
WRITES = {"--debug-tensor-dump-output-folder", "--modelopt-export-path"}


@pytest.mark.parametrize("name", sorted(REFUSED.keys() | RUNS | WRITES))
def test_a_flag_that_runs_or_writes_something_is_refused_by_name(model: Path, name: str) -> None:
    for words in ([name], [name, "a"], [f"{name}=a"], [name[:-1]]):
        assert name[:-1] in refused(model, *words)


@pytest.mark.parametrize("name", sorted(DROPPED))
def test_a_flag_of_serving_is_left_out_with_its_values(model: Path, name: str) -> None:
    found = check(model, "--tp", "2", name, "a", "-1", "b", "--pp", "2")
    assert found.argv == ("--model-path", str(model), "--tp", "2", "--pp", "2")
    assert [(one.name, one.matters) for one in found.left] == [(name, False)]


@pytest.mark.parametrize(
    "place", ["https://host/model", "s3://bucket/model", "meta-llama/Llama-3.1-8B", "", "a\0b"]
)
def test_a_model_that_would_be_fetched_is_refused(place: str) -> None:
    for name in ("--model-path", "--model"):
        with pytest.raises(Refused):
            checked([name, place], {})


def test_a_draft_that_would_be_fetched_is_refused(model: Path) -> None:
    assert "no folder of this machine" in refused(model, "--speculative-draft-model-path", "lmsys/draft")
    draft = model_folder(model.parent / "draft")
    assert str(draft) in check(model, "--speculative-draft-model-path", str(draft)).argv


def test_a_command_without_a_model_is_refused() -> None:
    with pytest.raises(Refused, match="names no model"):
        checked(["--tp", "8"], {})


@pytest.mark.parametrize(
    ("text", "says"),
    [
        ("[" * 100_000, "is no JSON"),
        ('{"a": ' * 70 + "1" + "}" * 70, "nested deeper"),
        ('{"a": "' + "x" * (9 << 20) + '"}', "larger than 8 MiB"),
        ("[]", "holds a list"),
        ("\xff", "is no JSON"),
    ],
)
def test_a_config_that_is_huge_or_no_mapping_is_refused(model: Path, text: str, says: str) -> None:
    (model / "config.json").write_text(text, encoding="latin-1")
    assert says in refused(model)


def test_a_config_that_is_a_pipe_is_not_waited_for(model: Path) -> None:
    (model / "config.json").unlink()
    os.mkfifo(model / "config.json")
    assert "no regular file" in refused(model)


@pytest.mark.parametrize(
    "override",
    [
        '{"auto_map": {"AutoConfig": "evil.Config"}}',
        '{"text_config": {"deep": [{"auto_map": {}}]}}',
        '{"_name_or_path": "https://host"}',
        "[1]",
        "{",
    ],
)
def test_an_override_may_not_say_where_code_is(model: Path, override: str) -> None:
    for words in (["--json-model-override-args", override], [f"--json-model-override-args={override}"]):
        assert "--json-model-override-args" in refused(model, *words)


def test_an_override_of_sizes_is_passed_on(model: Path) -> None:
    words = ("--json-model-override-args", '{"num_hidden_layers": 2}')
    assert check(model, *words).argv[-2:] == words


def test_an_address_is_refused_wherever_it_stands(model: Path) -> None:
    for name in ("--init-expert-location", "--deepep-config", "--some-flag-of-next-year", "--lora-paths"):
        assert name in refused(model, name, "https://host/a")


def test_where_ranks_meet_becomes_loopback(model: Path) -> None:
    found = check(model, "--dist-init-addr", "10.0.0.1:5000", "--nnodes", "2")
    assert found.argv[2:] == ("--dist-init-addr", "127.0.0.1:5000", "--nnodes", "2")
    assert "has no port" in refused(model, "--dist-init-addr", "10.0.0.1")


def test_remote_code_runs_only_if_both_sides_say_so(tmp_path: Path) -> None:
    own = model_folder(tmp_path / "own", auto_map={"AutoConfig": "configuration_own.OwnConfig"})
    plain = model_folder(tmp_path / "plain")
    flag = "--trust-remote-code"
    assert not check(own, trust=True).remote_code
    assert flag not in check(own, trust=True).argv
    told = check(own, flag)
    assert flag not in told.argv
    (left,) = told.left
    assert left.matters and str(own / "configuration_own.py") in left.why
    assert check(plain, flag).left == ()
    both = check(own, flag, trust=True)
    assert both.remote_code and both.argv[-1] == flag


def test_adapters_are_folders_without_pickles(model: Path, tmp_path: Path) -> None:
    adapter = tmp_path / "adapter"
    adapter.mkdir()
    (adapter / "adapter_model.bin").touch()
    for says in ("cannot be read", "holds no safetensors"):
        assert says in refused(model, "--lora-paths", f"one={adapter}")
        (adapter / "adapter_config.json").write_text("{}")
    (adapter / "adapter_model.safetensors").touch()
    assert check(model, "--lora-paths", f"one={adapter}").argv[-1] == f"one={adapter}"
    assert check(model, "--lora-paths", str(adapter)).argv[-1] == f"{adapter}={adapter}"
    told = json.loads(check(model, "--lora-paths", json.dumps({"lora_path": str(adapter)})).argv[-1])
    assert told == {"lora_path": str(adapter)}
    assert "no folder" in refused(model, "--lora-paths", "one=org/adapter")


def test_words_that_are_no_flags_are_refused(model: Path) -> None:
    for words in (["serve"], ["-x"], ["-"], ["--tp", "a" * (65 << 10)]):
        with pytest.raises(Refused):
            checked(words, {})


def test_only_numbers_and_known_words_of_known_libraries_are_passed() -> None:
    given = {
        "SGLANG_ENABLE_SPEC_V2": "true",
        "SGLANG_PP_LAYER_PARTITION": "31,30",
        "SGLANG_MAMBA_SSM_DTYPE": "float32",
        "PYTORCH_CUDA_ALLOC_CONF": "expandable_segments:True,max_split_size_mb:128",
        "CUBLAS_WORKSPACE_CONFIG": ":4096:2:16:8",
        "FLASHINFER_CUDA_ARCH_LIST": "9.0a",
        "NCCL_ALGO": "Ring",
        "CUDA_DEVICE_MAX_CONNECTIONS": "8",
    }
    assert passed(given) == given
    assert not list(left_out(given))


NEVER = {
    "PATH": "/evil", "PYTHONSTARTUP": "/evil.py", "PYTHONPATH": "/evil", "LD_PRELOAD": "/evil.so",
    "LD_LIBRARY_PATH": "/evil", "HTTPS_PROXY": "http://evil", "HF_TOKEN": "hf_secret", "BASH_ENV": "/evil",
    "TRITON_PTXAS_PATH": "/evil", "TORCHINDUCTOR_CACHE_DIR": "/evil", "GHOST_ROW": "sms=1",
    "CUDA_VISIBLE_DEVICES": "4,5", "GLIBC_TUNABLES": "1", "SGLANG_\n": "1",
}  # fmt: skip
NAMED = {
    "SGLANG_PLUGINS": "evil",
    "SGLANG_EXTERNAL_MODEL_PACKAGE": "evil",
    "SGLANG_NCCL_SO_PATH": "/evil.so",
    "SGLANG_NEXT_YEARS_LOADER": "evil.module",
}
QUIET = {
    "SGLANG_CACHE_DIR": "/evil", "SGLANG_TORCH_PROFILER_DIR": "/evil", "DG_JIT_NVCC_COMPILER": "/evil",
    "FLASHINFER_WORKSPACE_BASE": "/evil", "SGLANG_GRPC_PORT": "5000", "NCCL_SOCKET_IFNAME": "eth0",
    "NVSHMEM_BOOTSTRAP_PLUGIN_DIR": "/evil",
}  # fmt: skip


def test_variables_that_name_code_or_places_are_not_passed() -> None:
    assert passed(NEVER | NAMED | QUIET) == {}
    assert not list(left_out(NEVER))
    assert {one.name for one in left_out(NAMED) if one.matters} == NAMED.keys()
    assert {one.name for one in left_out(QUIET)} == QUIET.keys()
