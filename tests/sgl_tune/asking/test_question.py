"""From a command line to a question: the words as they were given, a folder as the model."""

import json
from pathlib import Path

import pytest

from runtime.record.events import Event
from sgl_tune.asking.ask import with_local_models
from sgl_tune.asking.question import Question, question_of
from sgl_tune.asking.whom import ByServer
from sgl_tune.deployment.cache_dir import default_cache_dir
from sgl_tune.deployment.launch import container_of
from sgl_tune.deployment.options import ServerFlags
from sgl_tune.errors import UsageError
from sgl_tune.recorded.asked import asking
from tests.sgl_tune.asking.test_kept import SERVER

H200 = ServerFlags.of(gpu="H200")


def asked(*command: str, **flags: object) -> Question:
    return question_of(SERVER, ServerFlags.of(gpu="h200", **flags), command)  # type: ignore[arg-type]


def test_our_own_flags_are_the_servers() -> None:
    found = asked(model_path="m", tp=2, enable_dp_attention=True, mem_fraction_static=0.9)
    assert found.model == "m" and found.gpu.key == "h200"
    assert "--enable-dp-attention" in found.argv and "0.9" in found.argv


@pytest.mark.parametrize(
    "command",
    [
        ("python", "-m", "sglang.launch_server", "--model-path", "m", "--brand-new-flag", "7"),
        ("SGLANG_X=1 python3 -m sglang.launch_server --model-path m --brand-new-flag 7",),
        ("docker", "run", "-e", "SGLANG_X=1", "lmsysorg/sglang:v0.5.17", "python3", "-m",
         "sglang.launch_server", "--model-path", "m", "--brand-new-flag", "7"),
    ],
)  # fmt: skip
def test_a_pasted_command_keeps_flags_that_nobody_here_knows(command: tuple[str, ...]) -> None:
    found = asked(*command)
    assert found.argv == ("--model-path", "m", "--brand-new-flag", "7")
    assert found.environment in ({}, {"SGLANG_X": "1"})


def test_the_folder_that_a_container_mounts_is_the_one_here() -> None:
    found = asked("docker", "run", "-v", "/data/models:/models", "lmsysorg/sglang:v0.5.17", "python3", "-m",
                  "sglang.launch_server", "--model-path", "/models/m")  # fmt: skip
    assert found.model == "/data/models/m"


def test_the_tag_of_an_image_names_the_release() -> None:
    command = "docker run lmsysorg/sglang:v0.5.17 python3 -m sglang.launch_server --model m"
    container = container_of((command,))
    assert container is not None and container.release == "0.5.17" and container_of(()) is None


@pytest.mark.parametrize(
    ("mount", "cache_dir", "said"),
    [
        (
            "-v /data/cache:/cache -e SGLANG_CACHE_DIR=/cache",
            "/data/cache",
            "/cache in the container is /data",
        ),
        ("", None, "the server's cache folder /root/.cache/sglang is in no mount"),
        ("-v named:/root/.cache", None, "name its folder: --cache-dir FOLDER"),
    ],
)
def test_a_plan_says_where_a_containers_caches_lie(mount: str, cache_dir: str | None, said: str) -> None:
    run = f"docker run {mount} lmsysorg/sglang:v0.5.17 python3 -m sglang.launch_server --model-path /"
    events: list[Event] = []
    with asking(ByServer(H200, (run,), None), SERVER, events.append) as one:
        assert str(one.whose.cache_dir) == (cache_dir or str(default_cache_dir()))
        assert any(said in note for note in one.whose.notes)
        assert "SGLang 0.5.17: the image lmsysorg/sglang:v0.5.17 says so" in one.whose.notes
    assert events == []  # a doubt about the folder waits until something is to be tuned


def test_others_cannot_hold_the_whole_gpu() -> None:
    with pytest.raises(UsageError, match="--taken leaves nothing"):
        question_of(SERVER, ServerFlags.of(gpu="l40s"), ("sglang serve m",), taken_bytes=1 << 36)


@pytest.mark.parametrize(
    ("command", "flags", "said"),
    [
        ((), {"tp": 2}, "names no model"),
        (("python -m sglang.launch_server --model m",), {"tp": 2}, "is given beside a server command"),
    ],
)
def test_what_is_no_question_is_said(command: tuple[str, ...], flags: dict[str, int], said: str) -> None:
    with pytest.raises(UsageError, match=said):
        asked(*command, **flags)


def test_a_gpu_that_is_not_in_the_table_is_named_with_those_that_are() -> None:
    with pytest.raises(UsageError) as caught:
        question_of(SERVER, ServerFlags.of(gpu="l4", model_path="m"), ())
    assert "h200" in str(caught.value.remedy)


def local(model: str, work: Path, named: str | None = None, home: Path | None = None) -> Question:
    question = question_of(SERVER, ServerFlags.of(gpu="h200", model_path=model), ())
    return with_local_models(question, named, work, {"HF_HOME": str(home or work / "none")})


def test_a_folder_stays_as_it_is(tmp_path: Path) -> None:
    assert local(str(tmp_path), tmp_path).model == str(tmp_path)


def test_a_preset_becomes_a_folder_with_the_name_of_its_model(tmp_path: Path) -> None:
    found = local("meta-llama/Llama-3.1-8B-Instruct", tmp_path)
    config = json.loads((Path(found.model) / "config.json").read_text())
    assert config["architectures"] == ["LlamaForCausalLM"]
    assert Path(found.model).name == "meta-llama-Llama-3.1-8B-Instruct"
    assert found.title == "meta-llama/Llama-3.1-8B-Instruct"


def test_a_model_in_the_hubs_cache_is_taken_with_its_own_code(tmp_path: Path) -> None:
    snapshot = tmp_path / "hub/models--org--new/snapshots/abc"
    snapshot.mkdir(parents=True)
    (snapshot / "config.json").write_text('{"architectures": ["NewForCausalLM"]}')
    (snapshot / "modeling_new.py").write_text("x = 1")
    (snapshot / "model.safetensors").write_bytes(b"large")
    (refs := tmp_path / "hub/models--org--new/refs").mkdir()
    (refs / "main").write_text("abc")
    (work := tmp_path / "work").mkdir()
    found = local("org/new", work, home=tmp_path)
    assert sorted(file.name for file in Path(found.model).iterdir()) == ["config.json", "modeling_new.py"]
    (snapshot / "hf_quant_config.json").symlink_to("../../blobs/lost")
    with pytest.raises(FileNotFoundError, match=r"hf_quant_config\.json"):
        local("org/new", work, home=tmp_path)


def test_a_config_that_is_named_counts_before_a_folder(tmp_path: Path) -> None:
    config = tmp_path / "other.json"
    config.write_text('{"architectures": ["OtherForCausalLM"]}')
    found = local(str(tmp_path), tmp_path, named=str(config))
    read = json.loads((Path(found.model) / "config.json").read_text())
    assert read["architectures"] == ["OtherForCausalLM"]


def test_a_model_that_nobody_has_is_named(tmp_path: Path) -> None:
    with pytest.raises(UsageError, match="no model at 'org/nowhere'"):
        local("org/nowhere", tmp_path)
