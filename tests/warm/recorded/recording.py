"""Calls of `flashinfer.demo` watched as a start's are: `python -m tests.warm.recorded.recording FD FILE`."""

import sys

from runtime.flashinfer.inside import tuner
from runtime.ghost.inside.stream import open_stream
from tests.warm.recorded import demo

ROWS, HIDDEN, INNER, EXPERTS = 8, 16, 12, 4


def main() -> None:
    open_stream(int(sys.argv[1]))
    module = demo.load()
    import torch
    from flashinfer import autotune
    from flashinfer.autotuner import AutoTuner

    from runtime.autotune.cpu_clock import CpuClock

    AutoTuner._instance = CpuClock()
    tuner.watch()
    held = torch.randn(EXPERTS * 2 * INNER * HIDDEN + EXPERTS * HIDDEN * INNER)
    w13 = held[: EXPERTS * 2 * INNER * HIDDEN].view(EXPERTS, 2 * INNER, HIDDEN)
    w2 = held[EXPERTS * 2 * INNER * HIDDEN :].view(EXPERTS, HIDDEN, INNER)
    ids = torch.tensor([[3, 1], [0, 2]] * (ROWS // 2))
    with autotune(True, cache=sys.argv[2], skip_ops={"another"}):
        for _ in range(2):  # equal layers
            module.experts(torch.randn(ROWS, HIDDEN), ids, w13, w2, EXPERTS)
        module.experts(torch.randn(ROWS, HIDDEN), ids, w13, w2, EXPERTS, plan=object(), tune_max_num_tokens=6)
        module.unmarked(torch.randn(2, HIDDEN), ids[:2], w13)
    module.experts(torch.randn(ROWS, HIDDEN), ids, w13, w2, EXPERTS)
    more = torch.cat([ids] * 2)
    module.experts(torch.randn(2 * ROWS, HIDDEN), more, w13, w2, EXPERTS, tune_max_num_tokens=16)


if __name__ == "__main__":
    main()
