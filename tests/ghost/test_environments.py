"""The Pythons of the tests: made from a list, with shared files, and made anew when somebody changed them."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.ghost import environments
from tests.ghost.environments import REFEREE, SMALLEST, VERSION, Recipe, listed, python_of
from tests.sgl_tune.servers.index import release, served, wheel


def test_both_lists_name_the_same_versions() -> None:
    small, whole = (listed(recipe) for recipe in (SMALLEST, REFEREE))
    assert small.items() <= whole.items()
    assert (whole["sglang"], whole["torch"], whole["transformers"]) == ("0.5.17", "2.11.0", "5.12.1")


def test_fa3_and_kernels_of_other_gpus_are_in_neither() -> None:
    for recipe in (SMALLEST, REFEREE):
        assert not recipe.wanted("sgl_kernel/flash_ops.abi3.so")
        assert not recipe.wanted("sgl_kernel/sm100/common_ops.abi3.so")
        assert recipe.wanted("sgl_kernel/sm90/common_ops.abi3.so")
        assert recipe.wanted("torch/bin/torch_shm_manager")


def test_an_environment_is_made_kept_and_made_anew_when_it_was_changed(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "index").mkdir()
    release(tmp_path / "index")
    wheel(tmp_path / "index", "odd", "1", {"odd/__init__.py": "", "odd/large.so": "x"})
    (tmp_path / "list.txt").write_text('sglang==0.5.17\nodd==1\ntorch==2.11.0; python_version < "3.10"\n')
    first, second = (
        Recipe(name, tmp_path / "list.txt", left_out, ("odd/large.py",), 1_000_000)
        for name, left_out in (("first", r".*\.so"), ("second", "nothing"))
    )
    monkeypatch.setattr(environments, "WORK", tmp_path / "work")
    with served(tmp_path / "index") as index:
        for name, value in index.environment.items():
            monkeypatch.setenv(name, value)
        packages = python_of(first).parents[1] / f"lib/python{VERSION}/site-packages"
        other = python_of(second).parents[1] / f"lib/python{VERSION}/site-packages"
        assert sorted(path.name for path in (packages / "odd").glob("*.*")) == ["__init__.py", "large.py"]
        assert (other / "odd/large.so").read_text() == "x"
        assert (packages / "sglang/data.txt").samefile(other / "sglang/data.txt")

        index.begin()
        assert python_of(first).exists() and not index.asked
        (packages / "odd/new.py").touch()
        python_of(first)
        assert not (packages / "odd/new.py").exists()
