"""Which suites can run here: `tests/sgl_tune` needs the base install alone, the others need torch."""

import os
import signal
import sys
from importlib.util import find_spec

collect_ignore = [] if find_spec("torch") else ["runtime", "stock", "warm", "memory", "gpu"]

# Two processes on two cores, and their children: torch's threads would wait for each other in turns.
os.environ.setdefault("OMP_NUM_THREADS", "1")

# Hundreds of processes start here: without their bytecode each would compile all of our source anew.
os.environ.pop("PYTHONDONTWRITEBYTECODE", None)
sys.dont_write_bytecode = False

# A shell's background job ignores Ctrl-C, nohup's a hang-up: every command tested here would inherit it.
signal.signal(signal.SIGINT, signal.default_int_handler)
signal.signal(signal.SIGHUP, signal.SIG_DFL)
