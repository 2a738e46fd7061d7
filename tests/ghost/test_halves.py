"""Host halves: a module's host code without its GPU code, kept where only this user may write."""

import ctypes
import lzma
import subprocess
from hashlib import sha256
from pathlib import Path

import pytest

from runtime.ghost import halves
from runtime.ghost.halves import Kind, keep_half, loadable, modules_of, pack, unpack
from runtime.ghost.library import Library, NotALibrary, host_half, unloadable
from runtime.ghost.trust import Untrusted
from tests.ghost.small_library import library, needs_cc

pytestmark = needs_cc
H200 = Kind("0.7.2", "90")
MACHINE = halves._machine()


@pytest.fixture
def module(tmp_path: Path) -> Path:
    return library(tmp_path / "built/one.so")


@pytest.fixture
def site(tmp_path: Path) -> Path:
    (tmp_path / "site/flashinfer_python-0.7.2.dist-info").mkdir(parents=True)
    return tmp_path / "site"


def seen(site: Path, root: Path, home: Path | None = None) -> dict[str, tuple[str, str]]:
    environment = {"HOME": str(home or root)}
    found = modules_of(site, "90", cuda=13, root=root, environment=environment)
    return {one.name: (one.state, one.why) for one in found}


def half_of(module: Path, root: Path) -> Path:
    return keep_half(module, H200, "one", root)


def test_a_half_answers_as_the_module_does_and_holds_no_gpu_code(module: Path, tmp_path: Path) -> None:
    assert b"GPU code that nobody runs" in module.read_bytes()
    half = half_of(module, tmp_path)
    assert b"GPU code" not in half.read_bytes()
    assert ctypes.CDLL(str(half)).answer() == 42
    assert half.stat().st_blocks * 512 < 100_000  # zeros take no room


def test_a_half_has_the_same_bytes_each_time_and_is_its_own_half(module: Path, tmp_path: Path) -> None:
    first = half_of(module, tmp_path / "a")
    assert first.name == half_of(module, tmp_path / "b").name == half_of(first, tmp_path / "c").name


def test_a_stripped_module_and_one_without_gpu_code_have_halves_too(module: Path, tmp_path: Path) -> None:
    subprocess.run(["strip", "--remove-section=.nv_fatbin", module], check=True)
    assert ctypes.CDLL(str(half_of(module, tmp_path))).answer() == 42


def test_what_calls_a_newer_name_of_an_old_function_loads_here(tmp_path: Path) -> None:
    newer = library(tmp_path / "newer.so", '__isoc23_strtol("7", 0, 10)')
    image = bytearray(newer.read_bytes())
    assert "__isoc23_strtol" in [one.name for one in Library(image).undefined()]
    half = half_of(newer, tmp_path)
    assert "__isoc23_strtol" not in [one.name for one in Library(half.read_bytes()).undefined()]
    assert ctypes.CDLL(str(half)).answer() == 49


def test_a_module_of_a_newer_glibc_is_refused_by_version_and_its_half_by_function(module: Path) -> None:
    image = bytearray(library(module, 'strtol("7", 0, 10)').read_bytes())
    (version,) = {one.name for one in Library(image).versions if one.glibc is not None} - {"GLIBC_2.999"}
    newer = bytes(image).replace(version.encode() + b"\0", b"GLIBC_2.99".ljust(len(version), b"9") + b"\0")
    assert unloadable(bytes(image), 36, MACHINE) == ""
    assert unloadable(newer, 36, MACHINE).startswith("it needs glibc 2.99")
    assert "it calls strtol of glibc 2.99" in unloadable(host_half(newer), 36, MACHINE)


def test_another_processor_is_refused(module: Path) -> None:
    assert unloadable(module.read_bytes(), 36, MACHINE + 1) == "it is made for another processor"


def test_no_damage_ends_in_anything_but_a_refusal(module: Path) -> None:
    image = module.read_bytes()
    loaded = Library(image).loaded_size
    for size in (*range(0, 2000, 37), *range(2000, len(image), 9973)):
        assert unloadable(image[:size], 36, MACHINE) or size >= loaded, size
        with pytest.raises(NotALibrary):
            host_half(image[:size])
    for at in range(0, 4096, 3):
        damaged = bytearray(image)
        damaged[at] ^= 0xFF
        unloadable(damaged, 36, MACHINE)
        try:
            host_half(damaged)
        except NotALibrary:
            continue


def test_a_module_that_others_may_write_becomes_no_half(module: Path, tmp_path: Path) -> None:
    module.parent.chmod(0o777)
    with pytest.raises(Untrusted):
        half_of(module, tmp_path / "root")
    assert not (tmp_path / "root").exists()


def test_a_kept_half_lies_by_version_architecture_name_and_digest(module: Path, tmp_path: Path) -> None:
    kept = keep_half(module, H200, "fused_moe_90", tmp_path / "root")
    digest = sha256(kept.read_bytes()).hexdigest()
    assert kept == tmp_path / f"root/halves/0.7.2/90/fused_moe_90/{digest}.so"
    assert {one.stat().st_mode & 0o777 for one in list(kept.parents)[:5]} == {0o700}
    assert keep_half(module, H200, "fused_moe_90", tmp_path / "root") == kept
    assert [one.name for one in kept.parent.iterdir()] == [kept.name]


def test_packed_halves_come_back_as_they_were(module: Path, tmp_path: Path) -> None:
    kept = keep_half(module, H200, "one", tmp_path / "root")
    digest = pack(kept, tmp_path / "one.xz")
    assert pack(kept, tmp_path / "again.xz") == digest
    assert (tmp_path / "one.xz").read_bytes() == (tmp_path / "again.xz").read_bytes()
    back = unpack(tmp_path / "one.xz", H200, "one", tmp_path / "other")
    assert back.stem == digest
    assert back.read_bytes() == kept.read_bytes()


@pytest.mark.parametrize("name", ["../one", "a/b", "", "a" * 201, "one.so\n"])
def test_a_name_that_leads_elsewhere_is_refused(module: Path, tmp_path: Path, name: str) -> None:
    with pytest.raises(NotALibrary, match="no name of a module"):
        keep_half(module, H200, name, tmp_path / "root")
    assert not (tmp_path / "root").exists()


def test_a_packed_module_becomes_its_half(module: Path, tmp_path: Path) -> None:
    (tmp_path / "one.so.xz").write_bytes(lzma.compress(module.read_bytes(), preset=9))
    kept = unpack(tmp_path / "one.so.xz", H200, "one", tmp_path / "root")
    assert kept.read_bytes() == bytes(host_half(module.read_bytes()))


def test_a_packed_module_that_is_damaged_or_not_ours_lands_nowhere(module: Path, tmp_path: Path) -> None:
    root, place = tmp_path / "root", tmp_path / "one.so.xz"
    packed = lzma.compress(module.read_bytes())
    for data, says in (
        (packed[:-20], "cut off"),
        (b"not packed" + packed, "damaged"),
        (lzma.compress(bytes(1000)), "64-bit ELF"),
        (lzma.compress(module.read_bytes()[:-3000]), "cut off"),
    ):
        place.write_bytes(data)
        with pytest.raises(NotALibrary, match=says):
            unpack(place, H200, "one", root)
    place.write_bytes(packed)
    place.chmod(0o666)
    with pytest.raises(Untrusted):
        unpack(place, H200, "one", root)
    assert not root.exists()


def test_a_real_module_comes_before_a_kept_half(module: Path, site: Path, tmp_path: Path) -> None:
    root = tmp_path / "root"
    keep_half(module, H200, "fused_moe_90", root)
    keep_half(module, Kind("0.7.2", "100"), "other_gpu", root)
    keep_half(module, Kind("0.7.1", "90"), "other_version", root)
    assert seen(site, root) == {"fused_moe_90": ("half", "")}
    library(site / "flashinfer/data/aot/fused_moe_90/fused_moe_90.so")
    library(site / "flashinfer_jit_cache_sm90a/jit_cache/norm/norm.so")
    library(tmp_path / "home/.cache/flashinfer/0.7.2/90a/cached_ops/page/page.so")
    library(tmp_path / "home/.cache/flashinfer/0.7.2/90a_100a/cached_ops/other/other.so")
    names = ("fused_moe_90", "norm", "page")
    assert seen(site, root, tmp_path / "home") == dict.fromkeys(names, ("real", ""))


def test_why_a_module_is_refused_is_said_and_its_half_used(module: Path, site: Path, tmp_path: Path) -> None:
    root = tmp_path / "root"
    place = library(site / "flashinfer/data/aot/one/one.so")
    (site / "flashinfer/data/aot/empty").mkdir()
    (site / "flashinfer/data/aot/empty/empty.so").touch()
    place.chmod(0o666)
    assert seen(site, root)["one"] == ("refused", f"others may write to {place} (chmod go-w {place})")
    assert seen(site, root)["empty"] == ("refused", "it cannot be read (it is empty)")
    keep_half(module, H200, "one", root)
    assert seen(site, root)["one"] == ("half", "")


def test_a_module_of_another_cuda_is_refused(site: Path, tmp_path: Path) -> None:
    library(tmp_path / "libcudart.so.12", "0", "-Wl,-soname,libcudart.so.12")
    flags = ("-Wl,--no-as-needed", str(tmp_path / "libcudart.so.12"))
    library(site / "flashinfer/data/aot/one/one.so", "0", *flags)
    why = "it is linked to CUDA 12, the server to CUDA 13"
    assert seen(site, tmp_path / "root") == {"one": ("refused", why)}


def of_a_newer_glibc(out: Path, function: str, scratch: Path) -> Path:
    """A module that calls `function` as glibc 2.99 has it, linked against a library that says it is that."""
    stand_in = scratch / "libc.c"
    stand_in.write_text(f"int {function}(void) {{ return 0; }}")
    (scratch / "map").write_text("GLIBC_2.99 { global: *; };")
    named = ["-nostdlib", "-Wl,-soname,libc.so.6", f"-Wl,--version-script={scratch / 'map'}"]
    subprocess.run(["cc", "-shared", "-fPIC", *named, "-o", scratch / "libc.so.6", stand_in], check=True)
    code = f'(({function}))("7", 0, 10)'
    return library(out, code, "-nostdlib", "-include", "stdlib.h", str(scratch / "libc.so.6"))


def test_a_half_is_made_of_a_module_that_a_newer_glibc_keeps_from_loading(site: Path, tmp_path: Path) -> None:
    root = tmp_path / "root"
    of_a_newer_glibc(site / "flashinfer/data/aot/one/one.so", "__isoc23_strtol", tmp_path)
    of_a_newer_glibc(site / "flashinfer/data/aot/two/two.so", "strtoull", tmp_path)
    found = modules_of(site, "90", cuda=13, root=root, environment={"HOME": str(root)})
    assert {one.state for one in found} == {"refused"}
    assert all(one.why.startswith("it needs glibc 2.99, and here is") for one in found)
    paths = loadable(found, H200, root)
    assert paths.keys() == {"one"}  # the function of the other is nowhere here
    assert ctypes.CDLL(paths["one"]).answer() == 49
    assert seen(site, root)["one"] == ("half", "")
