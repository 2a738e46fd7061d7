"""One process as a rank of a world: what it answers for missing peers, and what it keeps for them."""

from __future__ import annotations

import gc
import json
import subprocess
import sys
import weakref
from types import SimpleNamespace

import pytest
import torch

from runtime.sglang.inside import symmetric

_ALONE = """
import json, sys
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
FREE = "float(64 << 20)"


def alone(tp: int, pp: int = 1, value: str = FREE, op: str = "MIN") -> tuple[float, list[str]]:
    """Return the value that a lone rank gets for all, and the kinds of its inexact findings."""
    script = _ALONE.format(tp=tp, pp=pp, value=value, op=op)
    done = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True, timeout=120)
    assert done.returncode == 0, done.stderr
    lines = [json.loads(line) for line in done.stdout.splitlines()]
    (told,) = (line["value"] for line in lines if "value" in line)
    return told, [f"{one['kind']} {one['name']}" for one in lines if one.get("event") == "inexact"]


def test_two_ranks_have_as_much_free_as_each_other() -> None:
    assert alone(tp=2) == (64 << 20, [])


def test_one_of_more_ranks_has_less_free() -> None:
    assert alone(tp=4) == (63 << 20, [])


def test_of_as_many_as_nobody_measured_the_record_says_so() -> None:
    assert alone(tp=8) == (63 << 20, ["peer least free memory of 8 ranks"])


def test_another_stage_of_a_pipeline_holds_other_layers() -> None:
    assert alone(tp=1, pp=2) == (64 << 20, ["peer least free memory of 2 ranks"])


def test_what_is_no_minimum_stays() -> None:
    assert alone(tp=4, op="MAX") == (64 << 20, [])


def test_a_minimum_that_may_be_no_free_memory_stays_and_is_said() -> None:
    assert alone(tp=4, value="64 << 20") == (64 << 20, ["peer least int64 of 4 ranks on cpu"])
    assert alone(tp=2, value="64 << 20") == (64 << 20, [])


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
"""


def test_a_rank_that_is_alone_waits_for_nobody() -> None:
    done = subprocess.run([sys.executable, "-c", _ONE], capture_output=True, text=True, timeout=120)
    assert done.returncode == 0, done.stderr
