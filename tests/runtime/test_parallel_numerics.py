"""The same logits through every sharding, on real processes: each rank loads its part of the checkpoint."""

import os
from collections.abc import Iterable
from functools import cache
from itertools import product
from pathlib import Path
from typing import Any

import pytest
import torch

from runtime.forward.comm import DistributedCommunicator
from runtime.server.parallel import ParallelConfig
from tests.runtime.families import FAMILIES, MOE_FAMILIES, make_reference, prompts, reference_logits, save
from tests.runtime.generation import Generation, make_runtime
from tests.runtime.ranks import Ranks

TOLERANCE = 1e-4
STEPS = 2
TEXTS = prompts(13, 8, 10)

DENSE_LAYOUTS = {
    "tp2": ParallelConfig(tp=2),
    "tp4": ParallelConfig(tp=4),
    "dp2": ParallelConfig(tp=2, dp=2, enable_dp_attention=True),
    "pp2": ParallelConfig(pp=2),
    "tp4 dp2": ParallelConfig(tp=4, dp=2, enable_dp_attention=True),
    "pp2 tp2": ParallelConfig(tp=2, pp=2),
}
MOE_LAYOUTS = {
    "ep2": ParallelConfig(tp=2, ep=2),
    "tp4 ep2": ParallelConfig(tp=4, ep=2),
    "tp4 dp4 ep4": ParallelConfig(tp=4, dp=4, ep=4, enable_dp_attention=True),
    "tp4 dp2 ep2": ParallelConfig(tp=4, dp=2, ep=2, enable_dp_attention=True),
    "pp2 dp2 ep2": ParallelConfig(tp=2, pp=2, dp=2, ep=2, enable_dp_attention=True),
}
# Every family in every layout takes minutes: SGL_TUNE_ALL_LAYOUTS=1 asks for that.
_ALL = "SGL_TUNE_ALL_LAYOUTS" in os.environ
EVERYWHERE = ("llama", "qwen3_moe", "gpt_oss", "deepseek_v3", "minimax_m2")
ENOUGH = ("tp4 dp2", "pp2 tp2", "tp4 dp2 ep2")
_WITHIN = {"tp4 dp2": "tp4 dp2 ep2"}  # splits and gathers as much, where there are experts


def _pairs(families: Iterable[str], layouts: Iterable[str]) -> list[tuple[str, str]]:
    """By layout, as ranks of one stay together."""
    return [(family, name) for name, family in product(layouts, families) if _is_run(family, name)]


def _is_run(family: str, layout: str) -> bool:
    if _ALL or family in EVERYWHERE:
        return True
    return layout in ENOUGH and not (layout in _WITHIN and family in MOE_FAMILIES)


A2A_LAYOUTS = {
    "dp4 a2a": ParallelConfig(tp=4, dp=4, ep=4, enable_dp_attention=True),
    "dp2 a2a": ParallelConfig(tp=4, dp=2, ep=4, enable_dp_attention=True),
    "tp4 a2a": ParallelConfig(tp=4, ep=4),
}


@pytest.fixture(scope="module")
def saved(tmp_path_factory: pytest.TempPathFactory) -> Any:
    @cache
    def make(family: str) -> tuple[Path, list[torch.Tensor]]:
        model = make_reference(family)
        folder = save(model, tmp_path_factory.mktemp(family))
        return folder, [reference_logits(model, text)[-STEPS - 1 :] for text in TEXTS]

    return make


def _generate(
    comm: DistributedCommunicator, folder: Path, parallel: ParallelConfig, flags: dict[str, Any]
) -> dict[int, Any]:
    runtime = make_runtime(prefill_tokens=64, max_running_requests=8, **flags)
    rows = Generation(folder, parallel, runtime, comm).run(TEXTS, STEPS)
    return {number: torch.stack(own).numpy() for number, own in rows.items() if own}


def _check(ranks: Ranks, saved: Any, family: str, parallel: ParallelConfig, **flags: Any) -> None:
    folder, want = saved(family)
    seen = set()
    for rank, rows in enumerate(ranks.run(parallel, _generate, folder, parallel, flags)):
        assert bool(rows) <= (rank >= parallel.world_size - parallel.tp), "only the last stage has logits"
        for number, got in rows.items():
            torch.testing.assert_close(torch.from_numpy(got), want[number], atol=TOLERANCE, rtol=0)
            seen.add(number)
    assert seen == set(range(len(TEXTS)))


@pytest.mark.parametrize(("family", "layout"), _pairs(FAMILIES, DENSE_LAYOUTS))
def test_split_layers_answer_as_one_rank(ranks: Ranks, saved: Any, family: str, layout: str) -> None:
    _check(ranks, saved, family, DENSE_LAYOUTS[layout])


@pytest.mark.parametrize("layout", ["tp4", "tp4 dp2"])
def test_the_one_group_of_a_mamba_mixer_is_on_every_rank(ranks: Ranks, tmp_path: Path, layout: str) -> None:
    model = make_reference("nemotron_h", n_groups=1)
    want = [reference_logits(model, text)[-STEPS - 1 :] for text in TEXTS]
    alone = (save(model, tmp_path), want)
    _check(ranks, lambda family: alone, "nemotron_h", DENSE_LAYOUTS[layout])


@pytest.mark.parametrize(("family", "layout"), _pairs(MOE_FAMILIES, MOE_LAYOUTS))
def test_split_experts_answer_as_one_rank(ranks: Ranks, saved: Any, family: str, layout: str) -> None:
    _check(ranks, saved, family, MOE_LAYOUTS[layout])


@pytest.mark.parametrize("layout", A2A_LAYOUTS)
@pytest.mark.parametrize("family", ["qwen3_moe", "qwen3_next", "deepseek_v3", "gpt_oss"])
def test_an_all_to_all_answers_as_one_rank(ranks: Ranks, saved: Any, family: str, layout: str) -> None:
    _check(ranks, saved, family, A2A_LAYOUTS[layout], moe_a2a_backend="flashinfer")
