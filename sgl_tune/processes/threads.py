"""Whether more than one thread of Python runs here. To ask imports no threads where nothing has any."""

from __future__ import annotations

import sys


def is_alone() -> bool:
    threading = sys.modules.get("threading")
    running: int = threading.active_count() if threading else 1
    return running == 1
