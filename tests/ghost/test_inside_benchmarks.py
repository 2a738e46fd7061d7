"""torch.compile would time all kernels but those that a request names, and each is reported once."""

from __future__ import annotations

import json
import subprocess
import sys

_TIMED = """
import json, sys
from types import SimpleNamespace
from runtime.ghost.inside import benchmarks, stream
stream.open_stream(1)
benchmarks.hand_in(sys.argv[1:])
import torch._inductor.runtime.triton_heuristics as heuristics
ran = []
class Tuner(heuristics.CachingAutotuner):
    def __init__(self, name, size):
        self.fn = SimpleNamespace(__name__=name)
        self.custom_kernel, self.inductor_meta, self.size_hints = False, {}, {"x": size}
    def get_device_interface(self):
        ran.append(f"{self.fn.__name__} x={self.size_hints['x']}")
        raise InterruptedError
for name, size in (("mul_0", 8), ("mul_0", 64), ("softmax_1", 8), ("softmax_1", 8)):
    try:
        assert Tuner(name, size).bench(SimpleNamespace(n_spills=0, config=None)) == benchmarks.MILLISECONDS
    except InterruptedError:
        pass
print(json.dumps({"ran": ran}))
"""


def timed(*found: str) -> tuple[list[str], dict[str, bool]]:
    """Return the timed kernels, and for each kernel looked for whether it was found."""
    command = [
        sys.executable,
        "-c",
        "from runtime.ghost.inside import hooks; hooks.install()\n" + _TIMED,
        *found,
    ]
    done = subprocess.run(command, capture_output=True, text=True, timeout=120)
    assert done.returncode == 0, done.stderr
    *looked, ran = [json.loads(line) for line in done.stdout.splitlines()]
    assert all(one["event"] == "file" and one["store"] == "torch.compile" for one in looked)
    assert len(looked) == len({one["path"] for one in looked})
    return ran["ran"], {one["path"]: one["found"] for one in looked}


def test_a_start_finds_nothing_compiled() -> None:
    ran, looked = timed()
    assert ran == ["mul_0 x=8", "mul_0 x=64", "softmax_1 x=8", "softmax_1 x=8"]
    assert looked == dict.fromkeys(ran, False)


def test_what_a_request_names_is_there() -> None:
    ran, looked = timed("mul_*")
    assert ran == ["softmax_1 x=8", "softmax_1 x=8"]
    assert looked == {"mul_0 x=8": True, "mul_0 x=64": True, "softmax_1 x=8": False}


def test_kernels_of_one_name_are_told_apart_by_their_sizes() -> None:
    assert timed("mul_* x=64")[0] == ["mul_0 x=8", "softmax_1 x=8", "softmax_1 x=8"]
