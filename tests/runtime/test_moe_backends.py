"""The rows of the MoE backends, held against the kernels that they name."""

import pytest

from runtime.moe.backends import MoEBackend, make_backend
from runtime.moe.tuned import TunedBackend
from runtime.server.backends import BACKENDS, backend_row
from runtime.server.errors import ConfigError
from runtime.server.parallel import ParallelConfig, rank_layout
from tests.runtime.configs import runtime_config
from tests.runtime.starts import make_qwen


def _made(name: str) -> MoEBackend:
    runtime = runtime_config(moe_runner_backend=name)
    return make_backend(make_qwen(), runtime, rank_layout(ParallelConfig(), 0))


OWN = [row for row in BACKENDS.values() if row.kernels]


@pytest.mark.parametrize("name", [row.name for row in OWN])
def test_a_row_names_kernels_that_are_there(name: str) -> None:
    backend = _made(name)
    row = backend_row(name)
    assert isinstance(backend, TunedBackend) == (row.is_tuned)
    if isinstance(backend, TunedBackend):
        assert backend_row(backend.name).kernels == row.kernels


def test_a_backend_without_kernels_here_is_refused_by_name() -> None:
    with pytest.raises(ConfigError, match="--moe-runner-backend deep_gemm: this runtime has auto, triton"):
        _made("deep_gemm")
