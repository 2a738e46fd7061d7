"""torch.compile would time all kernels but those that a request names, and each is reported once."""

import json

import pytest

from tests.forks import outputs

_IMPORTS = """
from runtime.ghost.inside import hooks
hooks.install()
from runtime.ghost.inside import benchmarks, stream
import torch._inductor.runtime.triton_heuristics
"""
_TIMED = """
import json
from types import SimpleNamespace
from runtime.ghost.inside import benchmarks, stream
stream.open_stream(1)
benchmarks.hand_in({found})
import torch._inductor.runtime.triton_heuristics as heuristics
ran = []
class Tuner(heuristics.CachingAutotuner):
    def __init__(self, name, size):
        self.fn = SimpleNamespace(__name__=name)
        self.custom_kernel, self.inductor_meta, self.size_hints = False, {{}}, {{"x": size}}
    def get_device_interface(self):
        ran.append(f"{{self.fn.__name__}} x={{self.size_hints['x']}}")
        raise InterruptedError
for name, size in (("mul_0", 8), ("mul_0", 64), ("softmax_1", 8), ("softmax_1", 8)):
    try:
        assert Tuner(name, size).bench(SimpleNamespace(n_spills=0, config=None)) == benchmarks.MILLISECONDS
    except InterruptedError:
        pass
print(json.dumps({{"ran": ran}}))
"""
FOUND = ([], ["mul_*"], ["mul_* x=64"])


@pytest.fixture(scope="module")
def timed() -> list[tuple[list[str], dict[str, bool]]]:
    """Return the timed kernels, and for each kernel looked for whether it was found."""
    answers = []
    for said in outputs(_IMPORTS, [_TIMED.format(found=found) for found in FOUND]):
        *looked, ran = [json.loads(line) for line in said.splitlines()]
        assert all(one["event"] == "file" and one["store"] == "torch.compile" for one in looked)
        assert len(looked) == len({one["path"] for one in looked})
        answers.append((ran["ran"], {one["path"]: one["found"] for one in looked}))
    return answers


def test_a_start_finds_nothing_compiled(timed: list[tuple[list[str], dict[str, bool]]]) -> None:
    ran, looked = timed[0]
    assert ran == ["mul_0 x=8", "mul_0 x=64", "softmax_1 x=8", "softmax_1 x=8"]
    assert looked == dict.fromkeys(ran, False)


def test_what_a_request_names_is_there_and_sizes_tell_kernels_of_one_name_apart(
    timed: list[tuple[list[str], dict[str, bool]]],
) -> None:
    ran, looked = timed[1]
    assert ran == ["softmax_1 x=8", "softmax_1 x=8"]
    assert looked == {"mul_0 x=8": True, "mul_0 x=64": True, "softmax_1 x=8": False}
    assert timed[2][0] == ["mul_0 x=8", "softmax_1 x=8", "softmax_1 x=8"]
