"""Calls of `flashinfer.demo` that were recorded once, and workers that replay them."""

import json
import os
import subprocess
import sys
from collections.abc import Iterator
from typing import Any

import pytest

from runtime.record.calls import Call
from runtime.record.events import record_of
from sgl_tune.processes.command import ROOT
from sgl_tune.processes.scratch import Scratch, scratch
from tests.record.test_record import ASKED, ENDED, READY


@pytest.fixture(scope="package")
def calls(tmp_path_factory: pytest.TempPathFactory) -> tuple[Call, ...]:
    file = tmp_path_factory.mktemp("recorded") / "tactics.json"
    ours, theirs = os.pipe()
    command = [sys.executable, "-m", "tests.warm.recorded.recording", str(theirs), str(file)]
    with os.fdopen(ours, "rb") as stream:
        done = subprocess.Popen(command, pass_fds=[theirs], cwd=ROOT, stderr=subprocess.PIPE, text=True)
        os.close(theirs)
        events: list[dict[str, Any]] = [json.loads(line) for line in stream]
        _, said = done.communicate(timeout=120)
    assert done.returncode == 0, said
    return record_of(ASKED, [*events, READY, ENDED]).calls


@pytest.fixture
def private() -> Iterator[Scratch]:
    with scratch() as private:
        yield private
