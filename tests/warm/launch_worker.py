"""A worker for the launcher's tests: it does what its job says, over its real pipes."""

import os
import signal
import sys
import time
from typing import Any

from sgl_tune.processes.child import Child, leave
from sgl_tune.warm.events import DONE, ERROR, GATHER, JOB, PROGRESS, START


def main(child: Child) -> None:
    team = child.command()
    command = child.command()
    assert command["kind"] == JOB
    child.say(START, pid=os.getpid())
    act = command["plan"].get(str(team["rank"]), "work")
    child.say(DONE, report=_work(child, team["rank"], act))


def _work(child: Child, rank: int, act: str) -> dict[str, Any]:
    if act == "die":
        os.kill(os.getpid(), signal.SIGKILL)
    if act == "stop":
        os.kill(os.getpid(), signal.SIGSTOP)
    if act == "stall":
        time.sleep(60)
    if act == "mumble":
        print("the last thing that it knew")
        leave(7)
    if act == "fail":
        child.say(ERROR, message="tactic 7 of gemm1 ran out of memory")
        sys.exit(1)
    child.say(GATHER, value=[rank, "x" * 300_000])
    everyone = [value[0] for value in child.command()["values"]]
    child.say(PROGRESS, everyone=everyone)
    return {"everyone": everyone}
