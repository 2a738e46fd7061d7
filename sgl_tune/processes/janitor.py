"""Outlives us by a moment: `janitor.py FOLDER` waits until its pipe has no writer left, and cleans up.

Lines on the pipe name process groups that begin (+) and have ended (-): what is left of those is asked
to end and then killed, and the folder is removed. Run with -I -S: it needs and imports nothing but the
standard library.
"""

import os
import shutil
import signal
import sys
import time
from contextlib import suppress

ASKED_SECONDS = 0.3  # ninja ends its compilers, which lead groups of their own, when it is asked to


def main(folder: str) -> None:
    running: set[int] = set()
    for line in sys.stdin.buffer:
        number = int(line[1:])
        running = running | {number} if line[:1] == b"+" else running - {number}
    for number in (signal.SIGTERM, signal.SIGKILL):
        for group in running:
            with suppress(ProcessLookupError, PermissionError):
                os.killpg(group, number)
        if running and number == signal.SIGTERM:
            time.sleep(ASKED_SECONDS)
    shutil.rmtree(folder, ignore_errors=True)


if __name__ == "__main__":
    main(sys.argv[1])
