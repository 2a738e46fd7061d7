"""Which of FlashInfer's modules of attention a deployment loads, by the names that FlashInfer loads them."""

from __future__ import annotations

import json
from dataclasses import replace

import pytest

from runtime.server.attention_modules import attention_modules
from runtime.server.flashinfer import flashinfer_of
from runtime.server.layer_config import AttentionConfig
from runtime.server.releases import RELEASES
from sgl_tune.deployment.deployment import Deployment
from sgl_tune.deployment.options import ServerFlags
from sgl_tune.deployment.selection import select_deployments
from tests.stock.attention_modules import RECORDED, modules_told
from tests.stock.flashinfer_versions import PINNED

_MOE, _LATENT = "Qwen/Qwen3-30B-A3B", "deepseek-ai/DeepSeek-V3"
_STRIDED = "_kv_stride_equal"


@pytest.mark.parametrize("version", PINNED)
def test_every_pinned_flashinfer_loads_them_by_these_names(version: str) -> None:
    assert [one.name for one in modules_told(version)] == json.loads(RECORDED.read_text())[version]


def _deployed(model: str, release: str, gpu: str, backend: str) -> Deployment:
    flags = ServerFlags(model_path=model, tp=8, sglang_version=release, gpu=gpu, attention_backend=backend)
    return select_deployments(flags, (), None)[0]


def _asked(deployment: Deployment, window: int | None = None, **changes: object) -> list[str]:
    """Names of modules, and what is not known."""
    server, model = deployment.server, deployment.shape.model
    assert model is not None
    if window is not None:
        every = {kind: replace(one, window=window) for kind, one in model.attention.items()}
        model = replace(model, attention={**model.attention, **every})
    server = replace(server, asked=replace(server.asked, **changes))  # type: ignore[arg-type]
    row = flashinfer_of(deployment.flashinfer_version)
    return [one if isinstance(one, str) else one.name for one in attention_modules(server, model, row)]


@pytest.mark.parametrize("release", [row.version for row in RELEASES])
def test_latent_attention_on_hopper_is_known_in_every_release(release: str) -> None:
    asked = _asked(_deployed(_LATENT, release, "h200", "flashinfer"))
    ragged, absorbed = asked
    assert "head_dim_qk_192_head_dim_vo_128" in ragged and ragged.endswith("f16qk_False_sm90")
    planned = "_planabi2_sm90" if flashinfer_of(_pinned(release)).strided_prefills else "_sm90"
    assert absorbed.startswith("batch_mla_attention_") and absorbed.endswith(f"profiler_False{planned}")
    assert _asked(_deployed(_LATENT, release, "h200", "flashmla")) == asked
    assert _asked(_deployed(_LATENT, release, "h200", "fa3")) == []


def _pinned(release: str) -> str:
    return next(row.flashinfer for row in RELEASES if row.version == release)


@pytest.mark.parametrize("release", [row.version for row in RELEASES])
def test_a_window_is_planned_where_nothing_is_ragged(release: str) -> None:
    deployment = _deployed(_MOE, release, "h200", "flashinfer")
    usual = _asked(deployment, 1024)
    assert sum("use_swa_True" in one for one in usual) <= deployment.server.compiles_prefills
    alone = _asked(deployment, 1024, enable_deterministic_inference=True)
    planned = next(row for row in RELEASES if row.version == release).plans_windows
    assert sum("use_swa_True" in one for one in alone) == planned
    assert "cascade" in usual and "cascade" not in alone
    assert not any(one.endswith("_sm90") for one in alone)


def test_since_0_7_a_paged_prefill_is_of_the_module_for_equal_strides() -> None:
    old, new = (_asked(_deployed(_MOE, release, "h200", "flashinfer")) for release in ("0.5.21", "0.5.23"))
    assert [one.removesuffix(_STRIDED) for one in new] == old
    assert any(one.endswith(_STRIDED) for one in new)


@pytest.mark.parametrize("release", ["0.5.17", "0.5.20", "0.5.23"])
def test_blackwells_ragged_prefills_are_cutlasss(release: str) -> None:
    deployment = _deployed(_MOE, release, "b200", "flashinfer")
    assert not deployment.server.compiles_prefills
    assert "fmha_cutlass_sm100a" in _asked(deployment)


def test_blackwells_other_heads_are_fa2s_since_0_5_21() -> None:
    for release, by_cutlass in (("0.5.20", True), ("0.5.21", False)):
        deployment = _deployed(_MOE, release, "b200", "flashinfer")
        model = deployment.shape.model
        assert model is not None
        wide: dict[str, AttentionConfig] = {
            kind: replace(one, head_dim=256) for kind, one in model.attention.items()
        }
        row = flashinfer_of(deployment.flashinfer_version)
        found = attention_modules(deployment.server, replace(model, attention=wide), row)
        names = [one if isinstance(one, str) else one.name for one in found]
        assert ("fmha_cutlass_sm100a" in names) is by_cutlass


def test_trtllms_module_is_known_and_its_cubins_are_named() -> None:
    asked = _asked(_deployed(_MOE, "0.5.23", "b200", "trtllm_mha"))
    assert asked == ["fmha_gen", "the cubins that fmha_gen downloads as it needs them"]
    latent = _asked(_deployed(_LATENT, "0.5.23", "b200", "trtllm_mla"))
    assert latent == [*asked, "attention by trtllm_mla, but for fmha_gen"]


@pytest.mark.parametrize(("release", "unknown"), [("0.5.20", 0), ("0.5.22", 1), ("0.5.23", 1)])
def test_latent_attention_on_blackwell_is_known_until_it_hangs_on_the_batch(
    release: str, unknown: int
) -> None:
    asked = _asked(_deployed(_LATENT, release, "b200", "flashinfer"))
    assert "fmha_cutlass_sm100a" in asked
    assert sum(one.startswith("latent attention by flashinfer on sm100") for one in asked) == unknown
    assert sum(one.startswith("batch_mla_attention") for one in asked) == 1 - unknown
