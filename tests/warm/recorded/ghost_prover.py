"""The prover of a record, on the ghost."""

from sgl_tune.processes.child import Child
from sgl_tune.warm.recorded import prove
from tests.warm.recorded import ghost


def main(child: Child) -> None:
    ghost.enter()
    prove.main(child)
