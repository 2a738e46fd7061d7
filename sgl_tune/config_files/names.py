"""How SGLang names a file of MoE configurations, and the folder of the Triton that it is for."""

from __future__ import annotations

import re
from typing import NamedTuple

FOLDER, JSON, BESIDE = "configs", ".json", ".tuned"
_NAME = re.compile(
    r"E=(?P<experts>\d{1,9}),N=(?P<size>\d{1,9}),device_name=(?P<device>[^,/\s]{1,100}?)"
    r"(?P<rest>(?:,(?:dtype=\w{1,40}?|block_shape=\[\d{1,6}, \d{1,6}\]|per_channel_quant=True))*)"
    r"(?P<down>_down)?\.json"
)
_TRITON = re.compile(r"triton_(\d+(?:_\d+)*)")


class ConfigName(NamedTuple):
    """`rest`: what follows of types and scales."""

    experts: int
    size: int
    device: str
    rest: str
    is_down: bool

    @property
    def gpu(self) -> str:
        return self.device.replace("_", " ")


def config_name(file: str) -> ConfigName | None:
    match = _NAME.fullmatch(file)
    if match is None:
        return None
    experts, size, device, rest, down = match.group("experts", "size", "device", "rest", "down")
    return ConfigName(int(experts), int(size), device, rest, bool(down))


def triton_of(folder: str) -> str | None:
    """`triton_3_6_0` -> 3.6.0"""
    match = _TRITON.fullmatch(folder)
    return match[1].replace("_", ".") if match else None


def triton_folder(version: str) -> str:
    return f"triton_{version.replace('.', '_')}"


def beside(file: str) -> str:
    """Where sgl-tune says how it tuned a file: no name that SGLang looks for."""
    return file.removesuffix(JSON) + BESIDE
