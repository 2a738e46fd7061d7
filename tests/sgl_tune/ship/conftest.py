"""A bundle of everything that a root may have."""

import shutil
from pathlib import Path

import pytest

from tests.sgl_tune.running import ROOT, run_here
from tests.sgl_tune.stores import make


@pytest.fixture(scope="session")
def whole(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The bundle; `root` beside it is what was packed."""
    folder = tmp_path_factory.mktemp("made")
    shutil.copytree(ROOT / "cache-examples" / "cache", folder / "root")
    make.whole_root(folder / "root")
    assert run_here("pack", folder / "root", "-o", folder / "whole.tar.gz").ends(0)
    return folder / "whole.tar.gz"
