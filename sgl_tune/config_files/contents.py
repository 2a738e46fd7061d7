"""Predict what a file of MoE configurations does to a server that looks it up, by SGLang's loader."""

import json
from collections.abc import Mapping
from typing import Any, NamedTuple

LARGEST = 1 << 20
_NEEDED = ("BLOCK_SIZE_M", "BLOCK_SIZE_N", "BLOCK_SIZE_K", "GROUP_SIZE_M")
_OTHERS = ("num_warps", "num_stages", "num_ctas", "USE_TMA", "waves_per_eu", "matrix_instr_nonkdim", "kpack")


class Contents(NamedTuple):
    """A file's contents. `kills`: why the lookup ends the server. `fault`: why it has no effect, or ends
    the server later."""

    entries: Mapping[int, Any]
    kills: str = ""
    fault: str = ""


def contents(raw: bytes) -> Contents:
    """Read a file as SGLang does: keys become numbers, and values stay as they are."""
    try:
        document = json.loads(raw.decode("utf-8"))
        entries = {int(key): value for key, value in document.items()}
    except UnicodeDecodeError as error:
        return Contents({}, kills=f"byte {error.start} is not UTF-8")
    except AttributeError:
        return Contents({}, kills=f"it holds a {type(document).__name__}, not an object")
    except RecursionError:
        return Contents({}, kills="it is nested too deep")
    except json.JSONDecodeError as error:
        return Contents({}, kills=f"it is not JSON, or cut off: {str(error)[:100]}")
    except ValueError as error:
        return Contents({}, kills=f"a batch size is no number: {str(error)[:100]}")
    if not entries:
        return Contents({}, fault="it has no batch size: the server silently uses its untuned default")
    for rows, entry in entries.items():
        if why := _fault(entry):
            return Contents(
                entries, fault=f"batch size {rows} {why}: a forward that takes it ends the server"
            )
    return Contents(entries)


def _fault(entry: Any) -> str:
    if not isinstance(entry, dict):
        return f"holds a {type(entry).__name__}, not an object"
    missing = [name for name in _NEEDED if name not in entry]
    if missing:
        return f"lacks {missing[0]}"
    odd = [
        name
        for name, value in entry.items()
        if name in (*_NEEDED, *_OTHERS) and type(value) not in (int, bool)
    ]
    return f"has a {odd[0]} that is no number" if odd else ""


def as_file(entries: Mapping[int, Mapping[str, Any]]) -> bytes:
    """Return the file, sorted by batch size: of two equally near sizes SGLang takes the first."""
    return (json.dumps({str(rows): entries[rows] for rows in sorted(entries)}, indent=4) + "\n").encode()
