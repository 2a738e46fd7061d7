"""The lists of packages from which the Pythons of the tests are made."""

from __future__ import annotations

from tests.ghost.environments import REFEREE, SMALLEST, listed


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
