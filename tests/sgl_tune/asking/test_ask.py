"""The library's call where no server is there: an error that names the way to one."""

from pathlib import Path

import pytest

from sgl_tune.asking.ask import ask
from sgl_tune.errors import UsageError


def test_no_server_is_an_error_with_the_way_to_one(tmp_path: Path) -> None:
    with pytest.raises(UsageError):
        ask(["--model-path", str(tmp_path)], "h200", server=str(tmp_path))
