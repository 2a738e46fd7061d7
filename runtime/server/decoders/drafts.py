"""Drafts of a class of their own: what their model_type says is of the layers that they are made of."""

from __future__ import annotations

import re

from runtime.server.config import ModelConfig
from runtime.server.decoders import dflash, eagle, eagle3, eagle3_latent
from runtime.server.decoders.fields import HF, architecture_of
from runtime.server.errors import Unsupported

_KNOWN = (eagle3.ARCHITECTURE, eagle3_latent.ARCHITECTURE, *eagle.ARCHITECTURES, dflash.ARCHITECTURE)
# How drafts of other classes are called: srt/models/*eagle*.py, dflash.py
_OTHERS = re.compile(r"ForCausalLMEagle3?$|^Eagle3|^DFlash")


def is_draft(hf: HF) -> bool:
    architecture = architecture_of(hf)
    if architecture not in _KNOWN and _OTHERS.search(architecture):
        known = ", ".join(_KNOWN)
        raise Unsupported(f"{architecture} is not a draft that this runtime computes: here are {known}")
    return architecture in _KNOWN


def read_draft(hf: HF) -> ModelConfig:
    architecture = architecture_of(hf)
    if architecture in eagle.ARCHITECTURES:
        return eagle.read_eagle(hf, architecture)
    if architecture == dflash.ARCHITECTURE:
        return dflash.read_dflash(hf)
    if architecture == eagle3_latent.ARCHITECTURE:
        return eagle3_latent.read_latent_eagle3(hf)
    return eagle3.read_eagle3(hf)
