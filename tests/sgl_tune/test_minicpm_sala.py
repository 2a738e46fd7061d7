"""MiniCPM-SALA: how its servers attend, what they keep, and which end or are not known."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from runtime.server.decoders.known import model_config
from runtime.server.errors import ConfigError
from runtime.server.unpredicted import knows_forwards
from sgl_tune.deployment.deployment import Deployment
from sgl_tune.deployment.options import ServerFlags
from sgl_tune.deployment.selection import select_deployments
from sgl_tune.errors import UsageError
from sgl_tune.keys.starts import never_starts
from tests.memory.checkpoints import DATA

_FILES = json.loads((DATA / "published_families.json").read_text())
_PUBLISHED, _MINICPM = (_FILES[f"openbmb/MiniCPM-{name}"] for name in ("SALA", "2B-sft-bf16"))
_SEES_ALL = {**_PUBLISHED, "sparse_config": None}
_FORCED = {"SGLANG_MINICPM_FORCE_DENSE": "1"}


def _deployment(
    folder: Path, words: str = "", gpu: str = "H100", told: dict[str, Any] = _PUBLISHED, **more: Any
) -> Deployment:
    (folder / "config.json").write_text(json.dumps(told))
    command = ["python", "-m", "sglang.launch_server", "--model-path", str(folder), *words.split()]
    release = more.pop("release", "0.5.23")
    (found,) = select_deployments(ServerFlags(gpu=gpu, sglang_version=release), command=command, **more)
    return found


@pytest.mark.parametrize(
    ("gpu", "told", "words", "environ", "backend"),
    [
        ("H100", _PUBLISHED, "", {}, "minicpm_flashattn"),
        ("B200", _PUBLISHED, "", {}, "minicpm_flashinfer"),
        ("H100", _PUBLISHED, "--attention-backend fa3", {}, "fa3"),
        ("H100", _PUBLISHED, "", _FORCED, "fa3"),
        ("H100", _PUBLISHED, "--attention-backend minicpm_flashattn", _FORCED, "fa3"),
        ("B200", _PUBLISHED, "--attention-backend minicpm_flashattn", _FORCED, "fa4"),
        ("H100", _PUBLISHED, "--attention-backend minicpm_flashinfer", _FORCED, "flashinfer"),
        ("H100", _SEES_ALL, "", {}, "fa3"),
        ("B200", _SEES_ALL, "", {}, "trtllm_mha"),
    ],
)
def test_blocks_are_chosen_by_a_backend_of_its_own(
    gpu: str, told: dict[str, Any], words: str, environ: dict[str, str], backend: str, tmp_path: Path
) -> None:
    found = _deployment(tmp_path, words, gpu, told, environ=environ)
    assert found.server.prefill_attention_backend == found.server.decode_attention_backend == backend
    assert bool(found.shape.unknown) is backend.startswith("minicpm_")


def test_it_keeps_no_prefixes_and_a_state_a_request(tmp_path: Path) -> None:
    found = _deployment(tmp_path, "--attention-backend fa3")
    assert not found.server.states.keeps_prefixes and found.server.states.slots_each == 1
    assert found.model.recurrent is not None
    assert found.model.recurrent.state_shape(4).recurrent == (8, 128, 128)
    assert not knows_forwards(found.model) and never_starts(found) is None


@pytest.mark.parametrize(
    ("words", "told", "said"),
    [
        ("", _PUBLISHED, "attention on minicpm_flashattn and minicpm_flashinfer"),
        (
            "--prefill-attention-backend minicpm_flashattn --decode-attention-backend fa3",
            _PUBLISHED,
            "attention on minicpm_flashattn",
        ),
        ("", {**_SEES_ALL, "lightning_head_dim": 64}, "heads of other widths than 128"),
        ("--speculative-algorithm NGRAM --speculative-num-draft-tokens 4", _SEES_ALL, "drafts"),
    ],
)
def test_what_is_not_known_is_named(words: str, told: dict[str, Any], said: str, tmp_path: Path) -> None:
    assert said in str(_deployment(tmp_path, words, told=told).shape.unknown)


@pytest.mark.parametrize(
    ("told", "why"),
    [
        (["lightning", "mamba"], r"mixer_types is \['lightning', 'mamba'\]: a list of minicpm4"),
        ("lightning", "mixer_types is 'lightning': a list of"),
        (["lightning", "attn"] * 17, "mixer_types names 34 layers of 32"),
    ],
)
def test_kinds_of_layers_that_sglang_ends_at(told: Any, why: str) -> None:
    with pytest.raises(ConfigError, match=why):
        model_config({**_PUBLISHED, "mixer_types": told})


@pytest.mark.parametrize(
    ("words", "release", "why"),
    [
        ("--pp-size 2 --attention-backend fa3", "0.5.23", "no pipeline stages"),
        ("--is-embedding --attention-backend fa3", "0.5.23", "knows no embedding"),
        ("", "0.5.18", "has a class MiniCPMSALAForCausalLM"),
    ],
)
def test_which_servers_end(words: str, release: str, why: str, tmp_path: Path) -> None:
    assert why in str(never_starts(_deployment(tmp_path, words, release=release)))


@pytest.mark.parametrize(
    ("words", "told", "why"),
    [
        ("--dp 2 --tp 2 --enable-dp-attention", _SEES_ALL, "MiniCPM does not go with DP attention"),
        ("--enable-hierarchical-cache", _SEES_ALL, "does not go with --disable-radix-cache"),
        ("--disaggregation-mode prefill", _PUBLISHED, "MiniCPM-SALA's blocks do not go with"),
    ],
)
def test_which_servers_sglang_refuses(words: str, told: dict[str, Any], why: str, tmp_path: Path) -> None:
    with pytest.raises((ConfigError, UsageError), match=why):
        _deployment(tmp_path, words, told=told)


def test_minicpm_ends_under_dp_attention_before_sglang_refuses_it(tmp_path: Path) -> None:
    words = "--dp 2 --tp 2 --enable-dp-attention"
    found = never_starts(_deployment(tmp_path, words, told=_MINICPM, release="0.5.18"))
    assert found is not None and "splits its heads over all 2 ranks" in found
    with pytest.raises((ConfigError, UsageError), match="MiniCPM does not go with DP attention"):
        _deployment(tmp_path, words, told=_MINICPM, release="0.5.19")
