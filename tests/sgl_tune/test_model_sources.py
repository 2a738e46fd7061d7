"""Where a model's shape comes from: a named file, a folder, the Hugging Face cache, a preset."""

import json
import os
from pathlib import Path
from typing import Any

import pytest

from sgl_tune.deployment.deployment import Deployment
from sgl_tune.deployment.model_files import presets
from sgl_tune.errors import UsageError
from tests.sgl_tune.planning import HOPPER, deployment, plan, warm
from tests.sgl_tune.running import run

ID = "Qwen/Qwen3-30B-A3B"
PRESET = next(dict(preset.config) for preset in presets() if preset.name == "Qwen3-30B-A3B")
SMALLER = {**PRESET, "num_hidden_layers": 12, "num_experts": 64}
COMMIT = "0123456789abcdef0123456789abcdef01234567"
CUTLASS = ("--moe-runner-backend", "flashinfer_cutlass")


def _cached(hub: Path, config: Any, model: str = ID, ref: str = "main", commit: str = COMMIT) -> Path:
    """As `hf download MODEL config.json` leaves it: a link to a blob, and a ref."""
    repository = hub / f"models--{model.replace('/', '--')}"
    (repository / "blobs").mkdir(parents=True, exist_ok=True)
    blob = repository / "blobs" / commit[::-1]
    blob.write_text(json.dumps(config))
    snapshot = repository / "snapshots" / commit
    snapshot.mkdir(parents=True)
    (snapshot / "config.json").symlink_to(os.path.relpath(blob, snapshot))
    (repository / "refs" / ref).parent.mkdir(parents=True, exist_ok=True)
    (repository / "refs" / ref).write_text(commit)
    return hub


def _deployment(environ: dict[str, str], **flags: Any) -> Deployment:
    return deployment(environ, **{"model_path": ID, **flags})


def _source(found: Deployment) -> str:
    (note,) = (note for note in found.inputs.notes if note.startswith("model shape: "))
    return note.removeprefix("model shape: ")


@pytest.mark.parametrize(
    ("variable", "below"),
    [
        ("HF_HUB_CACHE", ""),
        ("HUGGINGFACE_HUB_CACHE", ""),
        ("HF_HOME", "hub"),
        ("XDG_CACHE_HOME", "huggingface/hub"),
    ],
)
def test_the_hugging_face_cache_beats_a_preset(tmp_path: Path, variable: str, below: str) -> None:
    _cached(tmp_path / below, SMALLER)
    found = _deployment({variable: str(tmp_path)})
    assert found.model.num_layers == 12
    assert _source(found).startswith("the Hugging Face cache, ")


def test_a_preset_is_the_last_that_is_asked(tmp_path: Path) -> None:
    assert _source(_deployment({"HF_HUB_CACHE": str(tmp_path)})) == "preset Qwen3-30B-A3B"


def test_a_server_commands_revision_is_the_one_that_is_read(tmp_path: Path, monkeypatch: Any) -> None:
    _cached(tmp_path, PRESET)
    _cached(tmp_path, SMALLER, ref="refs/pr/7", commit=COMMIT[::-1])
    monkeypatch.setenv("HF_HUB_CACHE", str(tmp_path))
    server = ("--", "python", "-m", "sglang.launch_server", "--model-path", ID, *CUTLASS)
    for revision in ("refs/pr/7", COMMIT[::-1]):
        ran = warm(*HOPPER, *server, "--revision", revision)
        assert f"{COMMIT[::-1]}/config.json" in ran.out
    assert f"{COMMIT}/config.json" in warm(*HOPPER, *server).out
    away = warm(*HOPPER, *server, "--revision", "elsewhere").out
    assert "model shape: preset Qwen3-30B-A3B, whatever --revision elsewhere has" in away


@pytest.mark.parametrize("way", ["flags", "command", "project file", "project command"])
def test_a_named_config_gives_the_shape_and_keeps_the_key(tmp_path: Path, way: str, monkeypatch: Any) -> None:
    path, config = "/models/that/are/elsewhere", tmp_path / "my config.json"
    config.write_text(json.dumps(SMALLER))
    monkeypatch.chdir(tmp_path)
    named = ("--model-config", config)
    command = ("sglang", "serve", "--model-path", path, *CUTLASS)
    ways: dict[str, tuple[object, ...]] = {
        "flags": (*named, "--model-path", path, *CUTLASS),
        "command": (*named, "--", *command),
        "project file": (),
        "project command": (),
    }
    more = {
        "project file": f'model-path = "{path}"\nmoe-runner-backend = "flashinfer_cutlass"\n',
        "project command": f'command = "{" ".join(command)}"\n',
    }
    if way in more:
        (tmp_path / "sgl-tune.toml").write_text(
            f'[deployments.a]\nmodel-config = "my config.json"\n{more[way]}'
        )
    data = plan(*HOPPER, *ways[way])
    assert data["key_parts"][0] == path and "(64, 1536, 2048)" in data["ops"][0]["keys"][0]
    assert any(note.startswith("model shape: ") and "my config.json" in note for note in data["notes"])
    assert data["deployment"]["model_path"] == path


def test_the_way_out_of_a_missing_config_is_to_fetch_or_to_name_it() -> None:
    ran = warm("--model-path", "org/unheard-of")
    assert ran.code == 2 and "fix: `hf download org/unheard-of config.json`; or " in ran.err
    assert "--model-config" in ran.err
    path = warm("--model-path", "/no/such/folder")
    assert path.code == 2 and "hf download" not in path.err and "--model-config" in path.err


def test_a_config_without_its_model_is_wrong_usage(tmp_path: Path) -> None:
    ran = run("warm", "--dry-run", "--model-config", tmp_path / "config.json", cwd=tmp_path)
    assert ran.code == 2 and "the key holds its path" in ran.err and "add --model-path" in ran.err


LAYERS = {"model_type": "llama", "architectures": ["LlamaForCausalLM"], "vocab_size": 8, "hidden_size": 8}
LAYERS |= {"num_hidden_layers": float("inf")}


@pytest.mark.parametrize(
    ("content", "message"),
    [
        (b"[" * 100000, "is not JSON"),
        (b'{"a":' * 80 + b"1" + b"}" * 80, "nested more than 60 deep"),
        (b" " * ((8 << 20) + 1), "more than such a file can hold"),
        (b"\xff", "is not UTF-8"),
        (json.dumps(LAYERS).encode(), "config.json: num_"),
        (None, "there is no such file, and no such preset"),
    ],
)
def test_a_hostile_config_is_one_sentence(tmp_path: Path, content: bytes | None, message: str) -> None:
    config = tmp_path / "config.json"
    if content is not None:
        config.write_bytes(content)
    with pytest.raises(UsageError, match=message):
        _deployment({}, model_config=str(config))


def test_a_pipe_is_never_waited_for(tmp_path: Path) -> None:
    os.mkfifo(tmp_path / "pipe")
    with pytest.raises(UsageError, match="is no regular file"):
        _deployment({}, model_config=str(tmp_path / "pipe"))
    hub = tmp_path / "models--Qwen--Qwen3-30B-A3B" / "refs"
    hub.mkdir(parents=True)
    os.mkfifo(hub / "main")
    with pytest.raises(UsageError, match="is no regular file"):
        _deployment({"HF_HUB_CACHE": str(tmp_path)})


FP4 = ("--quantization", "modelopt_fp4", "--server", "0.5.23")


@pytest.mark.parametrize(
    ("words", "error", "fix"),
    [
        (["--model-path", "/m", "--model-config", "qwen3-30b-a3"], "and no such preset", "Qwen3-30B-A3B?"),
        (["--model-path", "Qwen/Qwen3-30B-A3"], "no model at", "did you mean Qwen3-30B-A3B? `hf download"),
        (["--model-path", "Qwen3-30B-A"], "no model at", "did you mean Qwen3-30B-A3B?"),
        (["--model-path", "/m/Qwen3-30B-A3B"], "no model at", "if it is Qwen3-30B-A3B: --model-config Q"),
        # Another size is another model.
        (["--model-path", "meta-llama/Llama-3.1-405B"], "no model at", "fix: `hf download"),
        (["Qwen/Qwen3-30B-A3B"], "starts no SGLang server", "given by --model-path Qwen/Qwen3-30B-A3B"),
    ],
)  # fmt: skip
def test_what_is_not_found_is_named_with_what_is_near(words: list[str], error: str, fix: str) -> None:
    ran = run("warm", "--dry-run", *words)
    first, second = ran.err.splitlines()
    assert ran.code == 2 and error in first and fix in second and "405B?" not in second
