"""The worker of a record, with `flashinfer.demo`."""

from sgl_tune.processes.child import Child
from sgl_tune.warm.recorded import worker
from tests.warm.recorded import demo


def main(child: Child) -> None:
    demo.load()
    worker.main(child)
