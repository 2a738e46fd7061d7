"""Write the flags that the core knows by name, from a server: python benchmarks/server_flags.py VENV."""

from __future__ import annotations

import argparse
import sys
from pathlib import Path
from typing import Any

ABSENT = ("torchaudio", "torchcodec", "torchvision")  # they need libraries that an added server lacks
FLAGS = Path(__file__).parents[1] / "sgl_tune" / "deployment" / "flags.txt"


def _row(action: Any) -> str:
    kind = (
        "|".join(sorted(map(str, action.choices))) if action.choices else getattr(action.type, "__name__", "")
    )
    kind = "switch" if action.nargs == 0 else kind if "|" in kind or kind in ("int", "float") else "text"
    return f"{' '.join(action.option_strings)}\t{kind}{action.nargs or ''}"


if __name__ == "__main__":
    sys.path.append(str(next(Path(sys.argv[1]).glob("lib/python*/site-packages"))))
    sys.modules.update(dict.fromkeys(ABSENT))  # type: ignore[arg-type]
    from sglang.srt.server_args import ServerArgs

    ServerArgs.add_cli_args(parser := argparse.ArgumentParser(add_help=False))
    FLAGS.write_text("".join(sorted(f"{_row(one)}\n" for one in parser._actions)))
