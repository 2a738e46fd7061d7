"""Tiny models of every family: a file each says their sizes and what varies in random ones."""

from tests.runtime.families.known import FAMILIES, MOE_FAMILIES, TINY, WRAPPED
from tests.runtime.families.reference import (
    config_json,
    make_reference,
    prompts,
    reference_logits,
    save,
    sizes_of,
    tensors,
)
from tests.runtime.families.sizes import VOCAB, delta_layers

__all__ = [
    "FAMILIES",
    "MOE_FAMILIES",
    "TINY",
    "VOCAB",
    "WRAPPED",
    "config_json",
    "delta_layers",
    "make_reference",
    "prompts",
    "reference_logits",
    "save",
    "sizes_of",
    "tensors",
]
