"""`sgl-tune env`: a fingerprint, or a plain word about what is not known."""

import json
import shutil
from pathlib import Path

import pytest

from sgl_tune.fleet.node import parse_node
from tests.sgl_tune.running import ROOT, run_anew, run_on_terminal
from tests.sgl_tune.schemas import schema_faults
from tests.sgl_tune.stores.make import triton_kernel

MEMBERS = {
    "schema_version", "metadata", "arch", "driver", "torch", "sglang", "gpus", "unknown", "libraries",
    "name", "tool", "cache_dir", "user", "caches", "stores", "unseen",
}  # fmt: skip


def test_without_flashinfer_it_says_what_it_cannot_know(tmp_path: Path) -> None:
    for package in ("flashinfer", "torch"):
        (tmp_path / f"{package}.py").write_text("raise ImportError('not in this environment')")
    ran = run_anew("env", "--format", "json", PYTHONPATH=f"{tmp_path}:{ROOT}", PATH=str(tmp_path))
    data = json.loads(ran.out)
    assert ran.code == 0 and data.keys() == MEMBERS and schema_faults("env", data) == []
    assert [data[name] for name in ("metadata", "arch", "driver", "torch", "gpus")] == [*[None] * 4, []]
    assert "cannot be imported here (not in this environment)" in ran.err
    assert "no driver answers here" in ran.err
    shown = run_anew("env", PYTHONPATH=f"{tmp_path}:{ROOT}", PATH=str(tmp_path)).out
    assert "FlashInfer cannot be asked here" in shown and "What it does not" not in shown


def test_what_an_import_prints_does_not_spoil_the_json(tmp_path: Path) -> None:
    package = tmp_path / "flashinfer"
    package.mkdir()
    (package / "__init__.py").write_text("print('hello from an import')")
    (package / "autotuner.py").write_text(
        "def _collect_metadata():\n    print('and more')\n    return {'gpu': 'X'}"
    )
    ran = run_anew("env", "--format", "json", PYTHONPATH=f"{tmp_path}:{ROOT}", PATH=str(tmp_path))
    assert json.loads(ran.out)["metadata"] == {"gpu": "X"} and "hello from an import" in ran.err


def test_it_lists_the_caches_and_stores_that_a_server_here_would_find(tmp_path: Path) -> None:
    triton_kernel(tmp_path / "home" / ".triton" / "cache", "at_home")
    triton_kernel(tmp_path / "root" / "triton", "in_root")
    shutil.copytree(ROOT / "cache-examples" / "cache", tmp_path / "root", dirs_exist_ok=True)
    (tmp_path / "flashinfer.py").write_text("raise ImportError('no')")
    places = {"PYTHONPATH": f"{tmp_path}:{ROOT}", "PATH": str(tmp_path), "HOME": str(tmp_path / "home")}
    ran = run_anew(
        "env", "--format", "json", "--name", "gpu-7", "--cache-dir", tmp_path / "root",
        TRITON_CACHE_DIR=str(tmp_path / "home" / ".triton" / "cache"),
        TORCHINDUCTOR_CACHE_DIR=str(tmp_path / "nowhere"), **places,
    )  # fmt: skip
    data = json.loads(ran.out)
    assert schema_faults("env", data) == [] and data["name"] == "gpu-7" and len(ran.out) < 20_000
    assert {one["path"].rsplit("/", 1)[1][:4] for one in data["caches"]} == {"4393", "4aae", "ad60"}
    stores = {Path(one["path"]).relative_to(tmp_path).as_posix(): one["found"] for one in data["stores"]}
    assert stores == {"home/.triton/cache": 1, "root/triton": 1}
    node = parse_node(ran.out.encode())
    assert node.holdings is not None and node.holdings.caches[0].contents[0].entries == 42


@pytest.mark.parametrize("columns", [80, 120, 200])
def test_a_terminal_of_any_width_shows_it_all(tmp_path: Path, columns: int) -> None:
    root = tmp_path / "a-long-name" / ("of-a-folder/" * 8)
    shutil.copytree(ROOT / "cache-examples" / "cache", root)
    shown = run_on_terminal("env", "--cache-dir", root, columns=columns, NO_COLOR="1").out
    assert max(map(len, shown.splitlines())) <= columns and "3 caches" in shown
