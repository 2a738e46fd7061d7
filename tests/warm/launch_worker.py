"""A worker for the launcher's tests: it does what its folder's `plan.json` says, over real gloo."""

import json
import os
import signal
import sys
import time
from pathlib import Path

import torch.distributed as dist

from sgl_tune.warm.events import DONE, ERROR, PROGRESS, START, Reporter


def main(folder: Path) -> None:
    rank, local = int(os.environ["RANK"]), int(os.environ["LOCAL_RANK"])
    reporter = Reporter(folder, local)
    dist.init_process_group("gloo")
    reporter.say(START, pid=os.getpid())
    plan = json.loads((folder / "plan.json").read_text())
    act = plan.get(str(rank), "work")
    if act == "die":
        os.kill(os.getpid(), signal.SIGKILL)
    if act == "stop":
        os.kill(os.getpid(), signal.SIGSTOP)
    if act == "stall":
        time.sleep(60)
    if act == "fail":
        reporter.say(ERROR, message="tactic 7 of gemm1 ran out of memory")
        sys.exit(1)
    everyone = [None] * dist.get_world_size()
    dist.all_gather_object(everyone, rank)
    reporter.say(PROGRESS, everyone=everyone)
    dist.destroy_process_group()
    reporter.say(DONE)


if __name__ == "__main__":
    main(Path(sys.argv[1]))
