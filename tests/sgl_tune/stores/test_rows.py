"""The stores' rows: where each release's server looks for them."""

import pytest

from runtime.sglang.kept_files import ROWS, KeptFiles, files_doubt, kept_files
from sgl_tune.stores.rows import STORES, gathering, places

HOME, USER = "/home/u", "u"
NEWEST = ROWS[-1]
IDS = ("flashinfer-jit", "flashinfer-cubins", "tactics", "tvm-ffi", "triton", "inductor", "deep-gemm",
       "cute-dsl", "tilelang", "moe-configs", "halves", "driver")  # fmt: skip


def test_the_ids_are_those_that_others_speak_of() -> None:
    assert tuple(store.id for store in STORES) == IDS
    assert all(store.ships != (store.moves == "never") for store in STORES)


def test_a_release_keeps_its_files_as_the_row_before_it() -> None:
    assert kept_files((0, 5, 17)).since == (0, 5, 16) and kept_files((0, 5, 23)) == NEWEST
    assert kept_files((0, 5, 10)) == ROWS[0] and files_doubt("0.5.17", (0, 5, 17)) is None
    assert "0.6.0 is newer than 0.5.23" in (files_doubt("0.6.0", (0, 6, 0)) or "")


@pytest.mark.parametrize("row", ROWS, ids=lambda row: ".".join(map(str, row.since)))
def test_with_its_variables_a_server_looks_below_one_root_for_all_it_may_be_given(row: KeptFiles) -> None:
    found = places(row, gathering(row, "/root/of/all"), HOME, USER)
    assert set(found) == set(IDS)
    assert "SGLANG_MOE_CONFIG_DIR" not in gathering(row, "/root"), "a folder that is not there ends it"
    assert gathering(row, "/root", {"moe-configs"})["SGLANG_MOE_CONFIG_DIR"] == "/root/moe_configs"
    assert found.pop("halves") == (f"{HOME}/.cache/sgl-tune/halves",), "no server looks for them"
    for store in (one for one in STORES if one.id != "halves" and one.ships):
        assert all(place.startswith("/root/of/all/") for place in found[store.id])
        assert f"/root/of/all/{store.folder}" in found[store.id] or row.cute_objects == "not kept"


def test_without_any_variable_they_are_below_sglangs_own_folder() -> None:
    found = places(NEWEST, {}, HOME, USER)
    root = "/home/u/.cache/sglang"
    assert found["triton"] == (f"{root}/triton",)
    assert found["inductor"] == (f"{root}/inductor", f"{root}/torch_compile_cache")
    assert found["flashinfer-jit"] == (f"{root}/.cache/flashinfer",)
    assert found["tactics"] == (f"{root}/flashinfer/autotune",)
    assert found["cute-dsl"] == (f"{root}/cute_aot",)


def test_variables_of_the_environment_decide_the_folders() -> None:
    given = {"TRITON_CACHE_DIR": "/mine", "FLASHINFER_CUBIN_DIR": "/cubins", "SGLANG_CACHE_DIR": "~/all"}
    found = places(NEWEST, given, HOME, USER)
    assert (found["triton"], found["flashinfer-cubins"]) == (("/mine",), ("/cubins",))
    assert found["deep-gemm"] == ("/home/u/all/deep_gemm",)
    assert places(NEWEST, {"SGLANG_CUTE_AOT_CACHE_DIR": ""}, HOME, USER)["cute-dsl"] == ()


def test_modules_are_offered_by_a_package_of_the_root() -> None:
    found = gathering(NEWEST, "/root/of/all", {"flashinfer-jit"})
    assert found["PYTHONPATH"] == "/root/of/all/flashinfer-aot"


def test_where_a_server_may_not_write_flashinfer_has_another_folder() -> None:
    there = {"flashinfer-jit", "flashinfer-cubins", "triton", "tvm-ffi"}
    found = gathering(NEWEST, "/root/of/all", there, scratch="/scratch")
    assert found["FLASHINFER_WORKSPACE_BASE"] == "/scratch"
    looked_in = places(NEWEST, found, HOME, USER)
    assert looked_in["flashinfer-jit"] == ("/scratch/.cache/flashinfer",)
    assert looked_in["flashinfer-cubins"] == ("/root/of/all/.cache/flashinfer/cubins",)
    assert looked_in["triton"] == ("/root/of/all/triton",)
    assert all(place.startswith("/root/of/all/") for place in looked_in["tvm-ffi"])
    # What the root lacks is made elsewhere: torch ends a start whose folder for Inductor it cannot make.
    assert found["TORCHINDUCTOR_CACHE_DIR"] == "/scratch/inductor"
    assert looked_in["cute-dsl"] == ("/scratch/cute_aot",)
