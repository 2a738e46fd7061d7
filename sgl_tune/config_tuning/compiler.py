"""A process of the server's Python that compiles the kernels to measure, without opening the GPU."""

import time

from runtime.moe_configs.inside import pretending
from runtime.moe_configs.inside.places import places
from runtime.record.checked import read
from sgl_tune.config_tuning.job import LayerJob
from sgl_tune.processes.child import Child
from sgl_tune.warm.events import DONE, ERROR, PROGRESS, START


def main(child: Child) -> None:
    began = time.perf_counter()
    child.command()  # the first command, its team: this process alone
    child.say(START)
    for command in child.commands():
        job = read(LayerJob, command["job"], "job")
        try:
            pretending.be_a(*job.gpu)
            from runtime.moe_configs.compiling import compile_all

            here = places()
            imported = time.perf_counter() - began
            what = (job.call, job.kind, job.buckets, here, job.arguments, job.gpu[1:], job.processes)
            done = compile_all(*what, lambda: child.say(PROGRESS))
        except Exception as error:
            child.say(ERROR, message=f"{type(error).__name__}: {str(error)[:500]}")
            raise
        seconds = {"import": imported, "compile": done.seconds}
        child.say(DONE, report={"tried": done.tried, "failed": done.failed, "seconds": seconds})
        began = time.perf_counter()
