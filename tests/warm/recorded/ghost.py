"""What a worker does before it imports torch, so that it works on the ghost."""

import json
import os

import runtime.flashinfer.inside.unfinished  # noqa: F401
from runtime.ghost.inside import install


def enter() -> None:
    install.install(os.environ["SGL_TUNE_TEST_GHOST"], True, json.loads(os.environ["SGL_TUNE_TEST_HALVES"]))
