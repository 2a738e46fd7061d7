"""`sgl-tune env`: a fingerprint, or a plain word about what is not known."""

from __future__ import annotations

import json
from pathlib import Path

from tests.sgl_tune.running import ROOT, run_anew
from tests.sgl_tune.schemas import schema_faults

MEMBERS = {"schema_version", "metadata", "arch", "driver", "torch", "sglang", "gpus", "unknown", "libraries"}


def test_without_flashinfer_it_says_what_it_cannot_know(tmp_path: Path) -> None:
    for package in ("flashinfer", "torch"):
        (tmp_path / f"{package}.py").write_text("raise ImportError('not in this environment')")
    ran = run_anew("env", "--format", "json", PYTHONPATH=f"{tmp_path}:{ROOT}", PATH=str(tmp_path))
    data = json.loads(ran.out)
    assert ran.code == 0 and data.keys() == MEMBERS and schema_faults("env", data) == []
    assert [data[name] for name in ("metadata", "arch", "driver", "torch", "gpus")] == [
        None,
        None,
        None,
        None,
        [],
    ]
    assert "cannot be imported here (not in this environment)" in ran.err
    assert "no driver answers here" in ran.err


def test_what_an_import_prints_does_not_spoil_the_json(tmp_path: Path) -> None:
    package = tmp_path / "flashinfer"
    package.mkdir()
    (package / "__init__.py").write_text("print('hello from an import')")
    (package / "autotuner.py").write_text(
        "def _collect_metadata():\n    print('and more')\n    return {'gpu': 'X'}"
    )
    ran = run_anew("env", "--format", "json", PYTHONPATH=f"{tmp_path}:{ROOT}", PATH=str(tmp_path))
    assert json.loads(ran.out)["metadata"] == {"gpu": "X"} and "hello from an import" in ran.err
