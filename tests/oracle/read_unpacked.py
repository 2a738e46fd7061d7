"""Which of its fused matrices a class of SGLang's looks for under the names of their parts.

Runs in the oracle's interpreter. Reads cases, a JSON object a line, as read_held.
"""

from __future__ import annotations

import json
import sys
from typing import Any

from tests.oracle import read_held
from tests.oracle.inside import enter, keep_output

_FUSED = ("qkv_proj", "gate_up_proj", "fused_qkv_a_proj_with_mqa")


def main() -> None:
    enter()
    out = keep_output()
    for line in sys.stdin:
        print(json.dumps(_answer(json.loads(line))), file=out, flush=True)


def _answer(case: dict[str, Any]) -> Any:
    """Of what it has; or what it ends with."""
    made: list[Any] = []
    own = read_held._quantization

    def kept(config: Any, args: Any) -> Any:
        made.append(own(config, args))
        return made[-1]

    read_held._quantization = kept
    try:
        model = read_held._model(case)
    except Exception as error:
        return f"{type(error).__name__}: {error}"[:120]
    finally:
        read_held._quantization = own
    has = {name.rpartition(".")[2] for name, _ in model.named_modules()}
    unpacks = getattr(made[-1], "packed_modules_mapping", None) or {}
    return [[name, name in unpacks] for name in _FUSED if name in has]


if __name__ == "__main__":
    main()
