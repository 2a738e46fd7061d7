"""A kernel that this runtime does not have: it is counted, and its results have only sizes."""

from __future__ import annotations

import torch

from runtime.layers.opaque import opaque_op


@opaque_op("sgl_tune::sizes_alone_", mutates_args=("out",))
def _sizes_alone(out: torch.Tensor) -> None:
    raise NotImplementedError("a kernel that is predicted and cannot run")


@_sizes_alone.register_fake
def _(out: torch.Tensor) -> None:
    return None


def launch(*out: torch.Tensor) -> None:
    """One kernel that writes all of them."""
    if out:
        _sizes_alone(out[0])
