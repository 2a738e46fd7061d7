"""Which suites can run here: `tests/sgl_tune` needs the base install alone, the others need torch."""

import os
import signal
from importlib.util import find_spec

collect_ignore = [] if find_spec("torch") else ["runtime", "stock", "warm", "memory", "gpu"]

# Two processes on two cores, and their children: torch's threads would wait for each other in turns.
os.environ.setdefault("OMP_NUM_THREADS", "1")

# A shell's background job ignores Ctrl-C, nohup's a hang-up: every command tested here would inherit it.
signal.signal(signal.SIGINT, signal.default_int_handler)
signal.signal(signal.SIGHUP, signal.SIG_DFL)
