"""What SGLang's own tables of where experts are take beside a model, and its recorder: see read_held.py."""

from __future__ import annotations

import inspect
from types import SimpleNamespace
from typing import Any
from unittest.mock import patch

_ON_CPU = SimpleNamespace(device="cpu")


def table_bytes(model: Any, rank: int) -> int:
    """Without the copies that stay with the host."""
    import torch
    from sglang.srt.eplb import expert_distribution, expert_location

    places = expert_location.ModelConfigForExpertLocation
    told = type(model).get_model_config_for_expert_location(model.config)
    with (
        patch.object(places, "from_model_config", lambda _: told),
        patch.object(torch.distributed, "get_rank", lambda: rank),
        _patched(expert_location, "get_device", lambda: _ON_CPU),
        _patched(expert_distribution, "get_device_namespace", lambda: _ON_CPU),
        _patched(expert_distribution, "get_device", lambda: "cpu"),
    ):
        metadata, recorders = (
            expert_location.ExpertLocationMetadata,
            expert_distribution.ExpertDistributionRecorder,
        )
        made = _called(metadata.init_trivial, model_config=None, moe_ep_rank=rank)
        recorder = _called(recorders.init_new, expert_location_metadata=made, rank=rank)
    kept = [one for name, one in vars(made).items() if not name.endswith("_cpu")]
    buffered = vars(recorder).get("_accumulator")
    if buffered is not None:
        kept.append(buffered._global_physical_count_of_buffered_step._buffer)
        kept += [one._data for one in recorder._single_pass_gatherers.values()]
    return sum(one.nbytes for one in kept if isinstance(one, torch.Tensor))


def _called(function: Any, **told: Any) -> Any:
    """Older ones are given a server's arguments, too."""
    wanted = inspect.signature(function).parameters
    return function(**told, **({"server_args": _Arguments()} if "server_args" in wanted else {}))


class _Arguments:
    device = "cpu"

    def __getattr__(self, name: str) -> Any:
        from sglang.srt.server_args import get_global_server_args

        return getattr(get_global_server_args(), name)


def _patched(module: Any, name: str, value: Any) -> Any:
    return patch.object(module, name, value, create=not hasattr(module, name))
