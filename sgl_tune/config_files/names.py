"""SGLang's names of MoE configuration files, and of the folder for a Triton version."""

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
    """The parts of a name. `rest`: what follows, such as types and scales."""

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
    """Return the Triton version in a folder's name: `triton_3_6_0` -> 3.6.0."""
    match = _TRITON.fullmatch(folder)
    return match[1].replace("_", ".") if match else None


def triton_folder(version: str) -> str:
    return f"triton_{version.replace('.', '_')}"


def beside(file: str) -> str:
    """Return the name of the note beside a file, which SGLang never looks for."""
    return file.removesuffix(JSON) + BESIDE
