"""The bytes of a local checkpoint are its headers', and stand beside the prediction."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from sgl_tune.deployment.models import presets
from sgl_tune.errors import UsageError
from sgl_tune.memory.weight_files import beside_files, weight_files
from tests.sgl_tune.memory.reports import make_report
from tests.sgl_tune.running import run_here


def _write(file: Path, **tensors: int) -> None:
    header = {"__metadata__": {"format": "pt"}}
    end = 0
    for name, size in tensors.items():
        header[name.replace("__", ".")] = {"dtype": "U8", "shape": [size], "data_offsets": [end, end + size]}  # type: ignore[dict-item]
        end += size
    raw = json.dumps(header).encode()
    file.write_bytes(len(raw).to_bytes(8, "little") + raw + bytes(end))


def test_all_tensors_are_counted_and_those_of_a_draft_apart(tmp_path: Path) -> None:
    _write(tmp_path / "a.safetensors", model__layers__0__w=10, model__layers__2__w=5)
    _write(tmp_path / "b.safetensors", head=7)
    found = weight_files(tmp_path)
    assert found is not None and (found.bytes, found.files, found.beyond(2)) == (22, 2, 5)
    report = beside_files(make_report(), found, 2, 1)
    (row,) = report.comparisons[0].rows
    assert row.other == 17 and "22 bytes of weights: 3 tensors in 2 files" in report.notes[-1]
    assert beside_files(make_report(), found, 2, 8).comparisons == ()


def test_an_index_names_the_files_that_count(tmp_path: Path) -> None:
    _write(tmp_path / "a.safetensors", w=10)
    _write(tmp_path / "consolidated.safetensors", w2=10)
    (tmp_path / "model.safetensors.index.json").write_text('{"weight_map": {"w": "a.safetensors"}}')
    found = weight_files(tmp_path)
    assert found is not None and found.tensors == {"w": 10}


@pytest.mark.parametrize(
    "raw",
    [b"", b"\x02", (1 << 40).to_bytes(8, "little"), b"\2" + bytes(7) + b"[]", b"\5" + bytes(7) + b'{"a":'],
)
def test_what_is_no_safetensors_file_is_said(tmp_path: Path, raw: bytes) -> None:
    (tmp_path / "a.safetensors").write_bytes(raw)
    with pytest.raises(UsageError, match=r"a\.safetensors"):
        weight_files(tmp_path)
    assert weight_files(tmp_path / "nowhere") is None


def test_the_report_of_a_folder_says_it(tmp_path: Path) -> None:
    demo = next(preset for preset in presets() if preset.name == "demo-moe")
    (tmp_path / "config.json").write_text(json.dumps(dict(demo.config)))
    _write(tmp_path / "model.safetensors", w=1 << 20)
    line = ("mem-report", "--model", tmp_path, "--gpu", "l4", "--disable-cuda-graph", "--format", "json")
    told = json.loads(run_here(*line).out)
    assert any("1,048,576 bytes of weights" in note for note in told["notes"])
    assert told["comparisons"][0]["rows"][0]["other"] == 1 << 20
