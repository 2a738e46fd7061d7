"""Files of compressed-tensors that `--quantization w8a8_fp8` and `w8a8_int8` read as their own.

srt/layers/quantization: w8a8_fp8.py, w8a8_int8.py. What a file says of its groups is not looked at, and
w8a8_fp8 excludes nothing.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from runtime.server.errors import Unsupported
from runtime.server.formats.compressed import compressed

_STORED = {"w8a8_fp8": "fp8", "w8a8_int8": "int8"}
_READ = ("compressed-tensors", "compressed_tensors")


def as_rows(section: Mapping[str, Any], method: str | None) -> Mapping[str, Any]:
    """The section as `method` takes it, or as it was where another reads it."""
    if method not in _STORED or section.get("quant_method") not in _READ:
        return section
    found, stored = compressed(section), _STORED[method]
    kinds = [found.linear, found.experts, *found.of_expressions]
    if (
        any(one is not None and (one.name, one.per) != (stored, "row") for one in kinds)
        or found.linear is None
    ):
        raise Unsupported(
            f"--quantization {method}: SGLang takes the checkpoint's weights for {stored} a row, and what it "
            "loads of others is not known here: leave it out"
        )
    if any(one is not None and one.is_static for one in kinds):
        raise Unsupported(
            f"--quantization {method}: the checkpoint has scales of inputs, which it does not read"
        )
    return {**section, "quant_method": method}
