"""What FlashInfer's wrapper of CuTe DSL's experts asks its tuner for, on meta tensors.

In a process of its own, as the package of it asks for Triton, of which this part needs nothing.
"""

from __future__ import annotations

import json
import subprocess
import sys
from collections.abc import Sequence
from types import ModuleType
from unittest.mock import MagicMock

import torch

from tests.stock.kernel_stubs import AskingTuner

_DEADLINE = 120


Case = tuple[Sequence[int], Sequence[int], bool, bool]


def keys_of_cute_dsl(cases: Sequence[Case]) -> list[set[str]]:
    """Of each: hidden, experts of a rank, all, those of a token, how wide one is; counts of rows; whether
    rows are scaled each, and answers summed in the second GEMM."""
    asked = json.dumps(cases)
    ran = subprocess.run(
        [sys.executable, "-m", "tests.stock.cute_dsl_keys", asked],
        capture_output=True,
        text=True,
        timeout=_DEADLINE,
        check=False,
    )
    assert ran.returncode == 0, ran.stderr
    return [set(keys) for keys in json.loads(ran.stdout.splitlines()[-1])]


def main() -> None:
    for name in ("triton", "triton.language"):
        sys.modules[name] = _nothing(name)
    print(json.dumps([sorted(_keys(case)) for case in json.loads(sys.argv[1])]))


def _keys(case: Case) -> dict[str, object]:
    from flashinfer.autotuner import AutoTuner
    from flashinfer.fused_moe.cute_dsl.fused_moe import CuteDslMoEWrapper

    (hidden, local, total, top_k, inner), rows, by_token, fused = case
    tuner = AskingTuner()
    AutoTuner._instance = tuner
    wrapper = CuteDslMoEWrapper(
        *(total, top_k, hidden, inner), num_local_experts=local, device="meta", use_fused_finalize=fused
    )
    for runner in (wrapper._runner, wrapper._per_token_runner):
        runner.forward = lambda inputs, **_: inputs[-1]
    for count in rows:
        _run(wrapper, case[0], count, by_token)
    return tuner.asked


def _nothing(name: str) -> ModuleType:
    module = MagicMock()
    module.__name__, module.__spec__ = name, None
    return module


def _run(wrapper: object, sizes: Sequence[int], rows: int, by_token: bool) -> None:
    h, e, _, k, i = sizes
    packed, scales = torch.uint8, torch.float8_e4m3fn

    def meta(*shape: int, dtype: torch.dtype = torch.float32) -> torch.Tensor:
        return torch.empty(shape, dtype=dtype, device="meta")

    def tiles(of: int, columns: int) -> torch.Tensor:
        return meta(32, 4, -(-of // 128), 4, -(-columns // 64), e, dtype=scales)

    wrapper.run(
        *(meta(rows, h // 2, dtype=packed), meta(rows, h // 16, dtype=scales)),
        *(meta(rows, k, dtype=torch.int32), meta(rows, k)),
        *(meta(e, 2 * i, h // 2, dtype=packed), tiles(2 * i, h), meta(e), meta(1)),
        *(meta(e, h, i // 2, dtype=packed), tiles(h, i), meta(e)),
        per_token_scale=meta(rows) if by_token else None,
    )


if __name__ == "__main__":
    main()
