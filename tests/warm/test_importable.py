"""A FlashInfer that cannot be imported ends in one sentence."""

import subprocess
import sys
from pathlib import Path

ASK = """
from sgl_tune.errors import WorkFailed
from sgl_tune.warm.devices import check_importable
try:
    check_importable()
except WorkFailed as failed:
    print(failed.message)
"""


def test_what_an_import_asks_of_a_gpu_is_said(tmp_path: Path) -> None:
    (tmp_path / "flashinfer").mkdir()
    (tmp_path / "flashinfer" / "__init__.py").write_text("raise AssertionError('no CUDA here\\nat all')")
    script = f"import sys; sys.path[:] = {[str(tmp_path), *sys.path]!r}\n{ASK}"
    done = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True, timeout=120)
    assert done.stdout.strip().endswith("cannot be imported here (no CUDA here)")
