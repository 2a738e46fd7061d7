"""Runs in the oracle's interpreter: what one release makes of server commands, an answer a line.

A command is {"id", "argv"}; each is answered in a fork of its own, for SGLang keeps globals.
"""

from __future__ import annotations

import json
import os
import sys
import traceback
from typing import Any

from tests.oracle.inside import enter, keep_output
from tests.oracle.release_start import flashinfer_is, server_of

OWN_CHECKS = (AssertionError, ValueError, NotImplementedError)
RAISES_RUNTIME_ERRORS = "/sglang/srt/dllm/"


def main() -> None:
    flashinfer = enter()
    out = keep_output()
    if not os.environ.get("ORACLE_DEBUG"):
        os.dup2(os.open(os.devnull, os.O_WRONLY), 2)
    environment = dict(os.environ)
    flashinfer_is(flashinfer)
    _import_once(sys.argv[5])
    os.environ.clear()
    os.environ.update(environment)
    for line in sys.stdin:
        command = json.loads(line)
        out.write(_in_a_fork(command) + "\n")
        out.flush()


def _import_once(model: str) -> None:
    """Whatever an answer imports, imported before the forks."""
    try:
        server_of(["--model-path", model])
    except Exception:
        traceback.print_exc()


def _in_a_fork(command: dict[str, Any]) -> str:
    read, write = os.pipe()
    child = os.fork()
    if child == 0:
        os.close(read)
        with os.fdopen(write, "w") as pipe:
            pipe.write(json.dumps({"id": command["id"], **_answer(command["argv"])}))
        os._exit(0)
    os.close(write)
    with os.fdopen(read) as pipe:
        text = pipe.read()
    os.waitpid(child, 0)
    return text or json.dumps({"id": command["id"], "failed": "died"})


def _answer(argv: list[str]) -> dict[str, Any]:
    """`refused` is SGLang's own decision; `failed` is that this oracle could not ask it."""
    try:
        return {"server": server_of(argv)}
    except SystemExit:
        return {"refused": "its own parser"}
    except BaseException as error:
        if os.environ.get("ORACLE_DEBUG"):
            traceback.print_exc()
        place = traceback.extract_tb(error.__traceback__)[-1]
        own = isinstance(error, OWN_CHECKS) and "/sglang/srt/" in place.filename
        own = own or (isinstance(error, RuntimeError) and RAISES_RUNTIME_ERRORS in place.filename)
        said = f"{type(error).__name__}: {error}"[:300]
        where = f"{place.filename.split('/sglang/')[-1].rsplit('site-packages/')[-1]}:{place.name}"
        return {"refused" if own else "failed": said, "where": where}


if __name__ == "__main__":
    main()
