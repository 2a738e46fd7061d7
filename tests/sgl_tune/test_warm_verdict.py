"""`sgl-tune warm` of servers that tune nothing, or what cannot be planned: said first, nothing written."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from sgl_tune.deployment.models import presets
from tests.sgl_tune.modelopt import with_its_embedding
from tests.sgl_tune.planning import BLACKWELL, HOPPER, warm
from tests.sgl_tune.running import Ran, run_here

QWEN = ("--model-path", "Qwen3-30B-A3B")
NOTHING = (*QWEN, *HOPPER)
NEITHER = (
    "tunes nothing: SGLang tunes neither MoE backend auto nor unquantized GEMMs; with --moe-runner-backend "
)
UNPLANNED = ("--model-path", "{mixed}", *HOPPER)


@pytest.fixture(scope="module")
def mixed(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Llama 3.1 with its embedding in nvfp4."""
    return Path(with_its_embedding(tmp_path_factory.mktemp("mixed"), "Llama-3.1-8B"))


def _of(mixed: Path, flags: tuple[object, ...]) -> tuple[object, ...]:
    return tuple(mixed if one == "{mixed}" else one for one in flags)


def _warm(cache: Path, *arguments: object) -> Ran:
    """No file, no folder, and no word of the device: nothing is looked at that is not needed."""
    ran = run_here("warm", "--cache-dir", cache, *arguments)
    assert list(cache.parent.iterdir()) == [] and "Traceback" not in ran.err
    return ran


@pytest.mark.parametrize(
    ("flags", "code", "says"),
    [
        (NOTHING, 0, NEITHER),
        ((*NOTHING, "--disable-flashinfer-autotune"), 0, "tunes nothing: --disable-flashinfer-autotune"),
        (UNPLANNED, 1, "tunes FP8 GEMMs of quantization modelopt_mixed, which cannot be planned: "),
    ],
)
def test_nothing_to_warm_is_the_first_line_and_writes_nothing(
    tmp_path: Path, mixed: Path, flags: tuple[object, ...], code: int, says: str
) -> None:
    flags = _of(mixed, flags)
    ran, dry = _warm(tmp_path / "cache", *flags), warm(*flags)
    assert ran.out.startswith(says) and (ran.code, ran.out.count("\n")) == (code, 1)
    assert (dry.code, dry.out.splitlines()[0]) == (code, ran.out.rstrip())


@pytest.mark.parametrize(("flags", "code", "tunes"), [(NOTHING, 0, "nothing"), (UNPLANNED, 1, "unplanned")])
def test_scripts_learn_it_from_the_verdict(
    tmp_path: Path, mixed: Path, flags: tuple[object, ...], code: int, tunes: str
) -> None:
    flags = _of(mixed, flags)
    ran = _warm(tmp_path / "cache", *flags, "--format", "json")
    assert ran.code == code and json.loads(ran.out)["verdict"]["tunes"] == tunes
    quiet = _warm(tmp_path / "cache", *flags, "--format", "quiet")
    assert (quiet.code, quiet.out) == (code, "") and ": tunes " in quiet.err


def test_a_draft_that_cannot_be_planned_is_named_beside_what_is_planned(tmp_path: Path) -> None:
    config = {"model_type": "strange", "architectures": ["StrangeForCausalLM"], "num_attention_heads": 8}
    config["max_position_embeddings"] = 1 << 18
    (tmp_path / "config.json").write_text(json.dumps(config))
    draft = ("--speculative-algorithm", "EAGLE", "--speculative-draft-model-path", tmp_path)
    ran = warm("--model-path", "zai-org/GLM-5.1-FP8", "--tp", 8, *draft, *BLACKWELL)
    first = ran.out.splitlines()[0]
    assert ran.code == 1 and first.startswith("tunes the draft's MoE backend")
    assert first.endswith("entries in 8 files are planned")
    assert "flashinfer::trtllm_fp8_block_scale_moe" in ran.out


def test_every_deployment_has_its_line_and_the_worst_decides(
    tmp_path: Path, mixed: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "sgl-tune.toml").write_text(
        f'[deployments.idle]\nmodel-path = "Qwen3-30B-A3B"\n[deployments.unknown]\nmodel-path = "{mixed}"\n'
    )
    monkeypatch.chdir(tmp_path)
    for more in ((), ("--dry-run",)):
        ran = run_here("warm", "--cache-dir", tmp_path / "cache", *HOPPER, *more)
        lines = [line for line in ran.out.splitlines() if "tunes " in line]
        assert ran.code == 1 and not (tmp_path / "cache").exists()
        assert [line.partition(" tunes")[0] for line in lines] == ["idle:", "unknown:"]


def test_what_is_planned_and_has_no_kernels_here_is_refused_before_the_search(tmp_path: Path) -> None:
    mxfp4 = ("--model-path", "gpt-oss-120b", *BLACKWELL)
    dry = warm(*mxfp4)
    assert dry.code == 0 and "; no warm can tune them here: this runtime has no kernels of" in dry.out
    ran = run_here("warm", "--cache-dir", tmp_path / "cache", *mxfp4)
    assert ran.code == 1 and "this runtime has no kernels of flashinfer_mxfp4" in ran.err
    assert list(tmp_path.iterdir()) == []


def test_another_backend_is_advised_where_no_warm_can_tune_what_is_planned(tmp_path: Path) -> None:
    config = next(dict(preset.config) for preset in presets() if preset.name == "Qwen3-30B-A3B")
    modelopt = {"quant_method": "modelopt", "quant_algo": "FP8", "ignore": ["lm_head"]}
    (tmp_path / "config.json").write_text(json.dumps({**config, "quantization_config": modelopt}))
    model = ("--model-path", tmp_path, "--tp", 4, *BLACKWELL)
    first = warm(*model, "--moe-runner-backend", "flashinfer_trtllm").out.splitlines()[0]
    assert "; no warm can tune them here: " in first and "; without --moe-runner-backend it tunes " in first
    assert "no warm can" not in warm(*model).out.splitlines()[0]


def test_a_server_that_does_not_run_is_not_told_to_tune_by_itself() -> None:
    model = ("--model-path", "DeepSeek-V3", "--moe-runner-backend", "flashinfer_trtllm", *HOPPER)
    ran = run_here("verify", *model, "--format", "json")
    remedies = {found["code"]: found["remedy"] for found in json.loads(ran.out)["findings"]}
    assert remedies["not-planned"] == "leave --moe-runner-backend out: no end of it is known then"


def test_what_cannot_be_tuned_here_leaves_no_other_deployment_cold(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "sgl-tune.toml").write_text(
        '[deployments.fp4]\nmodel-path = "gpt-oss-120b"\n[deployments.idle]\nmodel-path = "Llama-3.1-8B"\n'
    )
    monkeypatch.chdir(tmp_path)
    ran = run_here("warm", "--cache-dir", tmp_path / "cache", *BLACKWELL)
    assert ran.code == 1 and "error: fp4: tunes 1 op" in ran.err
    assert ran.out.startswith("idle: tunes nothing: ") and not (tmp_path / "cache").exists()
