"""Compilers that compile nothing."""

import os
import subprocess
from pathlib import Path

from runtime.ghost.inside.compilers import TOOLS, environment
from runtime.ghost.inside.tools.ninja import outputs


def _run(*words: str, **options: str) -> str:
    given = {**os.environ, "GHOST_CUDA": "12.8", **environment(os.environ["PATH"])}
    return subprocess.run(words, env=given, check=True, capture_output=True, text=True, **options).stdout  # type: ignore[call-overload,no-any-return]


def test_a_build_file_leads_to_its_libraries_and_not_to_objects(tmp_path: Path) -> None:
    build = "\n".join(
        [
            "name = fused",
            "rule link",
            "  command = ld -o $out $in",
            "build $name/a.cuda.o: compile a.cu",
            "build $name/$name.so: link $",
            "  $name/a.cuda.o",
            "build with$ space.so: link a.o",
        ]
    )
    (tmp_path / "build.ninja").write_text(build)
    _run("ninja", "-v", "-C", str(tmp_path), "-f", str(tmp_path / "build.ninja"))
    assert sorted(file.name for file in tmp_path.rglob("*.so")) == ["fused.so", "with space.so"]
    assert not list(tmp_path.rglob("*.o"))


def test_a_library_that_is_there_stays_as_it_is(tmp_path: Path) -> None:
    (tmp_path / "build.ninja").write_text("build real.so: link a.o\n")
    (tmp_path / "real.so").write_bytes(b"a real one")
    _run("ninja", cwd=str(tmp_path))
    assert (tmp_path / "real.so").read_bytes() == b"a real one"


def test_braces_and_escaped_colons_are_read() -> None:
    assert outputs("out = x\nbuild ${out}/a.so: link b.o\nbuild c$:d.so: link e.o\n") == ["x/a.so", "c:d.so"]


def test_nvcc_names_its_release_and_writes_what_it_was_asked_for(tmp_path: Path) -> None:
    assert "release 12.8" in _run("nvcc", "--version")
    _run("nvcc", "-cubin", "-o", str(tmp_path / "a.cubin"), "a.cu")
    assert (tmp_path / "a.cubin").stat().st_size > 0


def test_nvidia_smi_names_the_memory_of_each_gpu() -> None:
    query = ("nvidia-smi", "--query-gpu=memory.total", "--format=csv,noheader,nounits")
    given = {"GHOST_ROW": "name=NVIDIA H200;nvml_total=150754820096;total=1", "GHOST_DEVICES": "2"}
    given |= environment(os.environ["PATH"])
    assert subprocess.run(query, env=given, capture_output=True, text=True).stdout == "143771\n143771\n"
    assert subprocess.run(["nvidia-smi", "-q"], env=given, capture_output=True).returncode == 9


def test_the_tools_come_first() -> None:
    assert environment("/usr/bin")["PATH"].split(":")[0] == str(TOOLS)
