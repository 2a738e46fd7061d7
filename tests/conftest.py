"""Which suites can run here: `tests/sgl_tune` needs the base install alone, the others need torch."""

import signal
from importlib.util import find_spec

collect_ignore = [] if find_spec("torch") else ["runtime", "stock", "warm", "memory", "gpu"]

# A shell's background job ignores Ctrl-C, nohup's a hang-up: every command tested here would inherit it.
signal.signal(signal.SIGINT, signal.default_int_handler)
signal.signal(signal.SIGHUP, signal.SIG_DFL)
