"""One process as a rank of a world: what it answers for missing peers, and what it keeps for them."""

import gc
import json
import sys
import weakref
from types import SimpleNamespace

import pytest
import torch

from runtime.sglang.inside import symmetric
from tests.forks import outputs

FREE = "float(64 << 20)"
_ALONE = """
import json
from types import SimpleNamespace
import torch, torch.distributed as dist
from runtime.ghost.inside import stream
stream.open_stream(1)
from runtime.sglang.inside import ranks
ranks.install(SimpleNamespace(tp_size={tp}, pp_size={pp}), less_free={{4: 1 << 20}})
world = {tp} * {pp}
dist.init_process_group("nccl", world_size=world, rank=0)
group = dist.new_group(list(range(world)), backend="gloo")
tensor = torch.tensor({value})
dist.all_reduce(tensor, op=dist.ReduceOp.{op}, group=group)
print(json.dumps(dict(value=tensor.item())))
"""
# tp, pp, a value, how all ranks' values become one; the answer for all, and what is inexact
ALONE = {
    "two ranks have as much free as each other": (2, 1, FREE, "MIN", 64 << 20, ""),
    "one of more ranks has less free": (4, 1, FREE, "MIN", 63 << 20, ""),
    "as many as nobody measured": (8, 1, FREE, "MIN", 63 << 20, "peer least free memory of 8 ranks"),
    "another stage holds other layers": (1, 2, FREE, "MIN", 64 << 20, "peer least free memory of 2 ranks"),
    "what is no minimum stays": (4, 1, FREE, "MAX", 64 << 20, ""),
    "what may be no free memory": (4, 1, "64 << 20", "MIN", 64 << 20, "peer least int64 of 4 ranks on cpu"),
    "the same of two ranks": (2, 1, "64 << 20", "MIN", 64 << 20, ""),
}


@pytest.fixture(scope="module")
def said() -> dict[str, str]:
    rows = (dict(zip(("tp", "pp", "value", "op"), row, strict=False)) for row in ALONE.values())
    programs = [*(_ALONE.format(**row) for row in rows), _ONE]
    return dict(zip((*ALONE, "one"), outputs("import torch.distributed\n", programs), strict=True))


@pytest.mark.parametrize("name", ALONE)
def test_a_lone_rank_answers_for_all_and_says_where_it_guesses(name: str, said: dict[str, str]) -> None:
    lines = [json.loads(line) for line in said[name].splitlines()]
    (value,) = (line["value"] for line in lines if "value" in line)
    inexact = [f"{one['kind']} {one['name']}" for one in lines if one.get("event") == "inexact"]
    assert (value, ", ".join(inexact)) == ALONE[name][-2:]


@pytest.fixture
def four_ranks(monkeypatch: pytest.MonkeyPatch) -> None:
    world = SimpleNamespace(get_rank=lambda: 0, get_world_size=lambda: 4)
    monkeypatch.setattr(torch, "distributed", world)
    monkeypatch.setitem(sys.modules, "torch.distributed", world)


@pytest.mark.usefixtures("four_ranks")
def test_ranks_meet_once_per_tensor_and_keep_the_addresses_of_all() -> None:
    tensor = torch.zeros(64, dtype=torch.uint8)
    met = symmetric._meet(tensor)
    assert symmetric._meet(tensor) is met is not symmetric._meet(torch.zeros(64))
    held = [one for one in vars(met).values() if isinstance(one, list) and isinstance(one[0], torch.Tensor)]
    assert [tuple(one.shape) for one in held[0]] == [(4,), (4,)]
    assert met.get_buffer(3, [8], torch.int32).data_ptr() == tensor.data_ptr()


@pytest.mark.usefixtures("four_ranks")
def test_what_ranks_met_on_is_freed_with_its_last_user() -> None:
    tensor = torch.zeros(64, dtype=torch.uint8)
    met = weakref.ref(symmetric._meet(tensor))
    gc.disable()
    try:
        assert met() is not None
        del tensor
        assert met() is None
    finally:
        gc.enable()


_ONE = """
from types import SimpleNamespace
import torch.distributed as dist
from torch.distributed import distributed_c10d as c10d
from runtime.sglang.inside import ranks
real, waited = c10d.barrier, []
def barrier(*args, **named):
    waited.append(args)
    return real(*args, **named)
c10d.barrier = barrier
ranks.install(SimpleNamespace(tp_size=1, pp_size=1), less_free={})
dist.init_process_group("gloo", store=dist.HashStore(), world_size=1, rank=0)
group = dist.new_group([0], backend="gloo")
dist.barrier(group)
dist.barrier(group=group)
assert not waited
dist.barrier(group, async_op=True).wait()
dist.barrier()
assert len(waited) == 2
print("waits for nobody")
"""


def test_a_rank_that_is_alone_waits_for_nobody(said: dict[str, str]) -> None:
    assert said["one"] == "waits for nobody\n"
