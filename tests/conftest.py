"""Which suites can run here: `tests/sgl_tune` needs the base install alone, the others need torch."""

from importlib.util import find_spec

collect_ignore = [] if find_spec("torch") else ["runtime", "stock", "warm", "memory", "gpu"]
