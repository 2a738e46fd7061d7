"""What SGLang's own offloader puts into the host's memory of a model of its own classes, without data.

Runs in the oracle's interpreter. Reads cases, a JSON object a line: those of read_held, and a budget.
"""

from __future__ import annotations

import json
import sys
from collections.abc import Iterator
from typing import Any
from unittest.mock import patch

from tests.oracle.inside import enter, keep_output
from tests.oracle.read_held import _model


def main() -> None:
    enter()
    out = keep_output()
    for line in sys.stdin:
        try:
            answer: Any = _answer(json.loads(line))
        except Exception as error:
            answer = f"{type(error).__name__}: {error}"[:160]
        print(json.dumps(answer), file=out, flush=True)


def _answer(case: dict[str, Any]) -> dict[str, Any]:
    """`layers`: what each gave up, by name and size; `aliases`: what of one keeps a tensor by another way."""
    import torch
    from sglang.srt.utils import offloader

    layers: list[list[Any]] = []
    kept: list[Any] = []

    class Watched(offloader.OffloaderV1):  # type: ignore[misc]
        def maybe_offload_to_cpu(self, module: Any) -> Any:
            with patch.object(torch, "empty_strided", _host(torch.empty_strided, kept)):
                made = super().maybe_offload_to_cpu(module)
            layers.append(
                [[name, _bytes(one)] for name, one in module.named_parameters() if _is_in(one, kept)]
            )
            return made

    offloader.set_offloader(Watched(case["budget"]))
    offloader.is_pin_memory_available = lambda: False
    model = _model(case)
    held = sum(_bytes(one) for one in model.parameters() if not _is_in(one, kept))
    parts = [one for one in model.modules() if "forward" in vars(one)]
    return {"layers": layers, "held": held, "wrapped": len(parts), "aliases": sorted(set(_aliases(parts)))}


def _bytes(tensor: Any) -> int:
    return tensor.numel() * tensor.element_size()


def _host(own: Any, kept: list[Any]) -> Any:
    """Room on the CPU is made without data, too, and kept apart: torch puts none behind what has none."""

    def empty_strided(size: Any, stride: Any, **told: Any) -> Any:
        assert told.pop("device") == "cpu"
        kept.append(own(size, stride, dtype=told["dtype"], device="meta"))
        return kept[-1]

    return empty_strided


def _is_in(tensor: Any, kept: list[Any]) -> bool:
    where = tensor.untyped_storage()._cdata
    return any(one.untyped_storage()._cdata == where for one in kept)


def _aliases(layers: list[Any]) -> Iterator[str]:
    import torch

    for layer in layers:
        known = {id(one) for one in layer.parameters()}
        stored = {one.untyped_storage()._cdata for one in layer.parameters() if one.is_meta}
        for owner in layer.modules():
            for name, value in vars(owner).items():
                if isinstance(value, torch.Tensor):
                    if not isinstance(value, torch.nn.Parameter) and value.untyped_storage()._cdata in stored:
                        yield f"{type(owner).__name__}.{name}"
                elif not isinstance(value, (torch.nn.Module, dict)) and hasattr(value, "__dict__"):
                    for inner, one in vars(value).items():
                        if id(one) in known:
                            yield f"{type(owner).__name__}.{name}.{inner}"


if __name__ == "__main__":
    main()
