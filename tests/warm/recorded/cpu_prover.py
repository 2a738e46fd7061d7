"""The prover of a record, with `flashinfer.demo`."""

from sgl_tune.processes.child import Child
from sgl_tune.warm.recorded import prove
from tests.warm.recorded import demo


def main(child: Child) -> None:
    demo.load()
    prove.main(child)
