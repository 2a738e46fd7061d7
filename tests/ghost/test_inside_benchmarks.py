"""Which kernels torch.compile would time: all but those that a request names, and each is reported once."""

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
    def __init__(self, name):
        self.fn = SimpleNamespace(__name__=name)
        self.custom_kernel, self.inductor_meta = False, {}
    def get_device_interface(self):
        ran.append(self.fn.__name__)
        raise InterruptedError
for name in ("triton_poi_mul_sum_0", "triton_poi_softmax_1", "triton_poi_softmax_1"):
    try:
        assert Tuner(name).bench(SimpleNamespace(n_spills=0, config=None)) == benchmarks.MILLISECONDS
    except InterruptedError:
        pass
print(json.dumps({"ran": ran}))
"""


def timed(*found: str) -> tuple[list[str], dict[str, bool]]:
    """The kernels that were timed, and of each that was looked for whether it was found."""
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
    assert ran == ["triton_poi_mul_sum_0", "triton_poi_softmax_1", "triton_poi_softmax_1"]
    assert looked == {"triton_poi_mul_sum_0": False, "triton_poi_softmax_1": False}


def test_what_a_request_names_is_there() -> None:
    ran, looked = timed("triton_poi_mul_*")
    assert ran == ["triton_poi_softmax_1", "triton_poi_softmax_1"]
    assert looked == {"triton_poi_mul_sum_0": True, "triton_poi_softmax_1": False}
