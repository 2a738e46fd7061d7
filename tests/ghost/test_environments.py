"""The lists of packages from which the Pythons of the tests are made."""

from tests.ghost.environments import REFEREE, SMALLEST, listed


def test_both_lists_name_the_same_versions() -> None:
    small, whole = (listed(recipe) for recipe in (SMALLEST, REFEREE))
    assert small.items() <= whole.items()
    assert (whole["sglang"], whole["torch"], whole["transformers"]) == ("0.5.17", "2.11.0", "5.12.1")


def test_fa3_and_kernels_of_other_gpus_are_in_neither() -> None:
    others, ours = ("flash_ops.abi3.so", "sm100/common_ops.abi3.so"), "sm90/common_ops.abi3.so"
    for recipe in (SMALLEST, REFEREE):
        assert not any(recipe.wanted(f"sgl_kernel/{name}") for name in others)
        assert recipe.wanted(f"sgl_kernel/{ours}") and recipe.wanted("torch/bin/torch_shm_manager")
