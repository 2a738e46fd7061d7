"""The rows of the MoE backends, held against the kernels that they name."""

from __future__ import annotations

import pytest
import torch

from runtime.layers.norm import weighed_norm
from runtime.moe.backends import make_backend
from runtime.moe.flashinfer_trtllm import summed
from runtime.moe.tuned import TunedBackend
from runtime.server.backends import BACKENDS, backend_row
from runtime.server.config import RuntimeConfig
from runtime.server.decoders.known import model_config
from runtime.server.errors import ConfigError
from runtime.server.parallel import rank_layout
from runtime.server.parallel_config import ParallelConfig
from tests.runtime.families import MOE_FAMILIES, config_json, make_reference
from tests.runtime.starts import make_qwen

OWN = [row for row in BACKENDS.values() if not row.stood_in]


@pytest.mark.parametrize("name", [row.name for row in OWN])
def test_a_row_names_kernels_that_are_there(name: str) -> None:
    backend = make_backend(name, make_qwen(), RuntimeConfig(), rank_layout(ParallelConfig(), 0))
    row = backend_row(name)
    assert isinstance(backend, TunedBackend) == (row.tuned_since is not None)
    if isinstance(backend, TunedBackend):
        assert backend_row(backend.name).kernels == row.kernels


def test_what_another_stands_in_for_has_none() -> None:
    with pytest.raises(ConfigError, match="--moe-runner-backend deep_gemm: this runtime has auto, triton"):
        make_backend("deep_gemm", make_qwen(), RuntimeConfig(), rank_layout(ParallelConfig(), 0))


def test_answers_that_kernels_leave_unfinished_are_normed_and_added_where_they_stand() -> None:
    """As the reference does it, one after the other; a place below 0 is another rank's."""
    torch.manual_seed(0)
    rows, answers, weight = torch.randn(3, 8), torch.randn(5, 8), torch.randn(8)
    places, shares = torch.tensor([[4, 0], [-1, 2], [1, -1]]), torch.rand(3, 2)
    found = summed(weighed_norm(answers, weight, 1e-3), shares, places.flatten().int(), rows)
    for row in range(3):
        wanted = torch.zeros(8)
        for share, place in zip(shares[row], places[row], strict=True):
            scaled = answers[place] * weight
            if place >= 0:
                wanted += share * scaled / (scaled.pow(2).mean() + 1e-3).sqrt()
        torch.testing.assert_close(found[row], wanted)


@pytest.mark.parametrize("family", sorted(MOE_FAMILIES))
def test_experts_beside_attention_write_no_answer_over_its_rows(family: str) -> None:
    model = model_config(config_json(make_reference(family)))
    assert model.moe is not None
    assert model.norms != "parallel" or model.moe.keeps_rows
