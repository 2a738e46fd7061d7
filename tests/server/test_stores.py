"""The stores' rows: where each release looks for them, beside what its wheel's own code said."""

from __future__ import annotations

import json
from typing import Any

import pytest

from runtime.server.releases import RELEASES, Release, release_named
from runtime.server.stores import STORES, gathering, places
from tests.oracle.store_places import HOME, RECORDED, USER, differences, environments

IDS = ("flashinfer-jit", "flashinfer-cubins", "tactics", "tvm-ffi", "triton", "inductor", "deep-gemm",
       "cute-dsl", "tilelang", "halves", "driver")  # fmt: skip


@pytest.fixture(scope="module")
def recorded() -> list[dict[str, Any]]:
    return [json.loads(line) for line in RECORDED.read_text().splitlines()]


def test_every_place_is_where_the_wheels_own_code_looks(recorded: list[dict[str, Any]]) -> None:
    assert list(differences(recorded)) == []
    assert sum(place is not None for row in recorded for place in row["places"].values()) > 300


def test_every_release_was_asked_with_every_environment(recorded: list[dict[str, Any]]) -> None:
    asked = [(row["release"], row["environment"]) for row in recorded]
    assert asked == [(row.version, given) for row in RELEASES for given in environments(row.version)]


def test_the_ids_are_those_that_others_speak_of() -> None:
    assert tuple(store.id for store in STORES) == IDS
    assert all(store.ships != (store.moves == "never") for store in STORES)


@pytest.mark.parametrize("release", RELEASES, ids=lambda release: release.version)
def test_with_its_variables_a_server_looks_below_one_root_for_all_it_may_be_given(release: Release) -> None:
    found = places(release, gathering(release, "/root/of/all"), HOME, USER)
    assert set(found) == set(IDS)
    assert found.pop("halves") == (f"{HOME}/.cache/sgl-tune/halves",), "no server looks for them"
    for store in (one for one in STORES if one.id != "halves"):
        assert not store.ships or all(place.startswith("/root/of/all/") for place in found[store.id])
    if release.cute_objects != "not kept":
        assert found["cute-dsl"] == ("/root/of/all/cute_aot",)
    for store in STORES:
        if store.ships and store.id not in ("cute-dsl", "halves"):
            assert f"/root/of/all/{store.folder}" in found[store.id]


def test_without_any_variable_old_releases_keep_them_at_home() -> None:
    found = places(release_named("0.5.17").release, {}, "/home/u", "u")
    assert found["triton"] == ("/home/u/.triton/cache",)
    assert found["inductor"] == ("/tmp/torchinductor_u", "/home/u/.cache/sglang/torch_compile_cache")
    assert found["flashinfer-jit"] == ("/home/u/.cache/flashinfer",)
    assert found["flashinfer-cubins"] == ("/home/u/.cache/flashinfer/cubins",)
    assert found["tvm-ffi"] == ("/home/u/.cache/tvm-ffi",)
    assert found["cute-dsl"] == ()


def test_libraries_own_variables_count_where_the_release_sets_none() -> None:
    old = release_named("0.5.17").release
    given = {"TMPDIR": "/scratch", "TRITON_HOME": "/mine", "FLASHINFER_CUBIN_DIR": "/cubins"}
    found = places(old, given, "/home/u", "u")
    assert found["inductor"][0] == "/scratch/torchinductor_u"
    assert found["triton"] == ("/mine/.triton/cache",)
    assert found["flashinfer-cubins"] == ("/cubins",)
    on = {"FLASH_ATTENTION_CUTE_DSL_CACHE_ENABLED": "1"}
    assert places(old, on, "/home/u", "u")["cute-dsl"] == ("/tmp/u/flash_attention_cute_dsl_cache",)
    new = release_named("0.5.23").release
    assert places(new, {"SGLANG_CUTE_AOT_CACHE_DIR": ""}, "/home/u", "u")["cute-dsl"] == ()


def test_modules_are_offered_by_a_package_of_the_root() -> None:
    found = gathering(RELEASES[0], "/root/of/all", {"flashinfer-jit"})
    assert found["PYTHONPATH"] == "/root/of/all/flashinfer-aot"
    assert "CUDA_CACHE_PATH" not in found


@pytest.mark.parametrize("release", RELEASES, ids=lambda release: release.version)
def test_where_a_server_may_not_write_flashinfer_has_another_folder(release: Release) -> None:
    there = {"flashinfer-jit", "flashinfer-cubins", "triton", "tvm-ffi"}
    found = gathering(release, "/root/of/all", there, scratch="/scratch")
    assert found["FLASHINFER_WORKSPACE_BASE"] == "/scratch"
    looked_in = places(release, found, HOME, USER)
    assert looked_in["flashinfer-jit"] == ("/scratch/.cache/flashinfer",)
    assert looked_in["flashinfer-cubins"] == ("/root/of/all/.cache/flashinfer/cubins",)
    assert looked_in["triton"] == ("/root/of/all/triton",)
    assert all(place.startswith("/root/of/all/") for place in looked_in["tvm-ffi"])
    # What the root lacks is made elsewhere: torch ends a start whose folder for Inductor it cannot make.
    assert found["TORCHINDUCTOR_CACHE_DIR"] == "/scratch/inductor"
    assert all(place == "/scratch/cute_aot" for place in looked_in["cute-dsl"])
    assert ("SGLANG_JIT_DEEPGEMM_PRECOMPILE" in found) == (release.number >= (0, 5, 19))
