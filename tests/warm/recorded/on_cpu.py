"""The workers that replay a record of `flashinfer.demo`, on a CPU."""

import sys

from sgl_tune.processes.command import ROOT, Python
from sgl_tune.warm.proof import How

HOW = How(
    "tests.warm.recorded.cpu_worker",
    "tests.warm.recorded.cpu_prover",
    Python(sys.executable, {"PYTHONPATH": str(ROOT), "OMP_NUM_THREADS": "1"}),
)
