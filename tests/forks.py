"""Programs in copies of one process, which has imported what takes long."""

import json
import subprocess
import sys
from collections.abc import Sequence

_EACH = """
import json as _json, os as _os, sys as _sys, traceback as _traceback
for _code in _json.loads(_sys.argv[1]):
    _ours, _theirs = _os.pipe()
    if not (_child := _os.fork()):
        _os.dup2(_theirs, 1)
        _os.close(_theirs)
        _status = 1
        try:
            exec(_code, {"__name__": "__main__"})
            _sys.stdout.flush()
            _status = 0
        except BaseException:
            _traceback.print_exc()
        finally:
            _os._exit(_status)
    _os.close(_theirs)
    with _os.fdopen(_ours) as _lines:
        _said = _lines.read()
    if _os.waitpid(_child, 0)[1]:
        _sys.exit(1)
    print(_json.dumps(_said))
"""


def outputs(imports: str, programs: Sequence[str]) -> list[str]:
    """Return what each program prints; `imports` runs once, before them."""
    command = [sys.executable, "-c", imports + _EACH, json.dumps(programs)]
    done = subprocess.run(command, capture_output=True, text=True, timeout=240)
    assert done.returncode == 0, done.stderr
    return [json.loads(line) for line in done.stdout.splitlines()[-len(programs) :]]
