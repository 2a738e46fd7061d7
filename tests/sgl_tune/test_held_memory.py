"""What other processes hold of a GPU, as the driver's own program says it."""

from pathlib import Path

import pytest

from sgl_tune.memory.core.measure import held_bytes
from tests.programs import program

MIB = 1 << 20
# Answers for GPU 3 and for one by its UUID, each another amount; else as if it were not there.
PROGRAM = """case "$*" in
  *"--query-gpu=memory.used"*"-i 0") echo 0 ;;
  *"--query-gpu=memory.used"*"-i 3") echo 5063 ;;
  *"--query-gpu=memory.used"*"-i GPU-6f") echo 12 ;;
  *) echo "No devices were found" >&2; exit 6 ;;
esac"""


@pytest.mark.parametrize(
    ("visible", "held"),
    [(None, 0), ("3", 5063 * MIB), ("3,0", 5063 * MIB), ("GPU-6f", 12 * MIB), ("7", None), ("", None)],
)
def test_held_memory_is_the_first_visible_gpus(
    visible: str | None, held: int | None, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    program(tmp_path / "nvidia-smi", PROGRAM)
    monkeypatch.setenv("PATH", f"{tmp_path}:/usr/bin:/bin")
    monkeypatch.delenv("CUDA_VISIBLE_DEVICES", raising=False)
    if visible is not None:
        monkeypatch.setenv("CUDA_VISIBLE_DEVICES", visible)
    assert held_bytes() == held


def test_without_a_driver_held_memory_is_unknown(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PATH", str(tmp_path))
    assert held_bytes() is None
