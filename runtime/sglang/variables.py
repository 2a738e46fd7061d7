"""Which variables of a pasted command a start gets: numbers, and words that name nothing."""

import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass

# Libraries that read settings from variables. A start gets no other variables, and no answer mentions them.
_PREFIXES = tuple(
    f"{name}_"
    for name in (
        *("SGLANG", "SGL", "FLASHINFER", "TRTLLM", "NCCL", "NVSHMEM", "DEEPEP", "DG", "CUBLAS", "CUBLASLT"),
        *("PYTORCH", "TORCH", "CUDA"),
    )
)
# The ghost sets its own devices.
_OURS = frozenset({"CUDA_VISIBLE_DEVICES"})
# Parts of names whose values name code, which may change the figures of a start.
_CODE = frozenset(
    {"PLUGIN", "PLUGINS", "PACKAGE", "PACKAGES", "MODULE", "MODULES", "IMPORT", "HOOK", "HOOKS", "EXTERNAL"}
    | {"PLATFORM", "SO", "LIBRARY", "PRELOAD"}
)
# Parts of names whose values name a place, a program, another machine or a secret.
_PLACES = frozenset(
    {"PATH", "DIR", "FILE", "FOLDER", "HOME", "BASE", "CACHE", "SCRIPT", "COMMAND", "COMPILER", "NVCC"}
    | {"PORT", "HOST", "HOSTNAME", "IP", "ADDR", "ADDRESS", "URL", "ENDPOINT", "SERVER", "SOCKET", "HCA"}
    | {"IFNAME", "PROXY", "TOKEN", "KEY", "SECRET", "PASSWORD", "TEST", "DUMP", "LOG", "DEBUG"}
)
_WORD_ENDINGS = (
    *("_DTYPE", "_MODE", "_BACKEND", "_METHOD", "_ALGO", "_PROTO", "_TYPE", "_VARIANT", "_LAYOUT"),
    *("_LOADING", "_PRECISION"),
)
# Values of the form name:value.
_SETTINGS = frozenset(
    {"PYTORCH_CUDA_ALLOC_CONF", "PYTORCH_ALLOC_CONF", "CUBLAS_WORKSPACE_CONFIG", "FLASHINFER_CUDA_ARCH_LIST"}
)
_NAME = re.compile(r"[A-Z][A-Z0-9_]{0,100}")
_NUMBERS = re.compile(r"(?i)(-?[\d.]{1,20}([,:;]-?[\d.]{1,20}){0,100}|true|false|yes|no|on|off)?")
_WORD = re.compile(r"[A-Za-z][A-Za-z0-9_]{0,30}")
_SETTING = re.compile(r"[\w.:,; \[\]>-]{0,200}")


@dataclass(frozen=True)
class Left:
    """A flag or variable that the start does not get. `matters`: it may change the start's figures."""

    name: str
    why: str
    matters: bool = False


def passed(environment: Mapping[str, str]) -> dict[str, str]:
    """Return the variables that a start gets."""
    return {
        name: value
        for name, value in sorted(environment.items())
        if _is_known(name) and _is_data(name, value)
    }


def left_out(environment: Mapping[str, str]) -> Iterator[Left]:
    """Yield the variables of known libraries that a start does not get, with the reason."""
    for name, value in sorted(environment.items()):
        parts = frozenset(name.split("_"))
        if not _is_known(name) or _is_data(name, value):
            continue
        if parts & _CODE:
            yield Left(name, "it names code", True)
        elif parts & _PLACES:
            yield Left(name, "it names a place, a machine or a secret")
        else:
            says = "its value is neither a number nor a word that is known to be harmless"
            yield Left(name, says, not name.startswith("NCCL_"))


def _is_known(name: str) -> bool:
    return name.startswith(_PREFIXES) and bool(_NAME.fullmatch(name)) and name not in _OURS


def _is_data(name: str, value: str) -> bool:
    """Whether a value is harmless: a number, or one word of a variable that selects something by name."""
    if name in _SETTINGS:
        return bool(_SETTING.fullmatch(value))
    parts = frozenset(name.split("_"))
    if "PORT" in parts:
        return False
    if name.endswith(_WORD_ENDINGS) and not parts & (_CODE | _PLACES) and _WORD.fullmatch(value):
        return True
    return bool(_NUMBERS.fullmatch(value))
