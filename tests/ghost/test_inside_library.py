"""Which file is used for a library if several copies are loaded."""

from typing import Any

import pytest

from runtime.ghost.inside import library
from runtime.sglang.inside import communicator
from tests.ghost.c_running import built


@pytest.fixture
def opened(monkeypatch: pytest.MonkeyPatch) -> Any:
    monkeypatch.setattr(library, "_library", None)
    return library.open_library(str(built() / "libghost.so"))


def test_the_ghosts_runtime_comes_before_a_copy_that_is_loaded(opened: Any) -> None:
    find = communicator._ours_first(lambda name: f"/elsewhere/{name}.deadbeef.so.13")
    assert find("libcudart") == str(built() / "libcudart.so")
    assert find("libamdhip64") == "/elsewhere/libamdhip64.deadbeef.so.13"
