"""An nvcc that compiles only host code: `host_nvcc.py NVCC ARGUMENTS`, with the arguments of `nvcc -c`.

nvcc itself lists the programs that it would run. Those for the GPU (cicc, ptxas, fatbinary) are left out, and
the stub of each kernel, which they would have made, returns at once. It needs only the standard library.
"""

import os
import re
import shlex
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from pathlib import Path

_VARIABLE = re.compile(r"([A-Z_]\w*)=(.*)")
_GPU_SIDE = frozenset({"cicc", "ptxas", "fatbinary", "nvlink", "rm", "erase"})
_STUB = re.compile(r"\bU (\S*__device_stub__\S*|\S*__nv_cudaEntityRegisterCallback\S*)$", re.MULTILINE)
_STUB_CODE = {"x86_64": "xorl %eax, %eax\n ret", "aarch64": "mov w0, #0\n ret"}
_OPTIMISED = re.compile(r"-O[123s]")


def main(arguments: list[str]) -> int:
    nvcc, *given = arguments
    words, out, depfile = _without_dependencies(given)
    with tempfile.TemporaryDirectory(prefix=f".{Path(out).name}.", dir=Path(out).parent) as work:
        listed = subprocess.run(
            [nvcc, "--dryrun", "--keep", f"--keep-dir={work}", *words], capture_output=True, text=True
        )
        if listed.returncode:
            sys.stderr.write(listed.stderr)
            return listed.returncode
        environment = dict(os.environ)
        for command in _commands(listed.stderr, environment):
            code = subprocess.run(_host_only(command), env=environment).returncode
            if code:
                return code
        _add_stubs(Path(out), Path(work))
    if depfile:
        Path(depfile).write_text(f"{out}:\n")
    return 0


def _without_dependencies(words: list[str]) -> tuple[list[str], str, str]:
    """Return the arguments without the dependency file, the object's name, and that file's name."""
    left, out, depfile = list[str](), "", ""
    rest = iter(words)
    for word in rest:
        if word in ("-MF", "--dependency-output"):
            depfile = next(rest, "")
        elif word not in ("--generate-dependencies-with-compile", "-MD", "-MMD"):
            left.append(word)
            if word == "-o":
                out = next(rest, "")
                left.append(out)
    return left, out, depfile


def _commands(listing: str, environment: dict[str, str]) -> Iterator[list[str]]:
    """Yield nvcc's commands for the host. Variables that it sets between them are added to `environment`."""
    for line in listing.splitlines():
        line = line.removeprefix("#$ ")
        variable = _VARIABLE.fullmatch(line)
        if variable:
            environment[variable[1]] = variable[2].strip()
            continue
        words = _split(line)
        if not words or Path(words[0]).name in _GPU_SIDE:
            continue
        if "-E" in words and any(word.startswith("-D__CUDA_ARCH__=") for word in words):
            continue
        yield words


def _split(line: str) -> list[str]:
    try:
        return shlex.split(line)
    except ValueError:
        return []


def _host_only(words: list[str]) -> list[str]:
    """Adapt the last compiler's command: it includes a file of stubs, which is missing and created empty."""
    made = next((word for word in words if word.endswith(".cudafe1.cpp")), None)
    if made is None or "-c" not in words:
        return words
    Path(f"{made.removesuffix('.cpp')}.stub.c").write_text("")
    kept = [word for word in words if not _OPTIMISED.fullmatch(word)]
    at = kept.index("-c")
    return [*kept[:at], "-O0", "-w", "-fpermissive", *kept[at:]]


def _add_stubs(out: Path, work: Path) -> None:
    """Add the kernels' stubs to the object. They are hidden symbols, so each object needs its own."""
    undefined = subprocess.run(["nm", "-u", out], capture_output=True, text=True, check=True).stdout
    names = sorted(set(_STUB.findall(undefined)))
    if not names:
        return
    code = _STUB_CODE[os.uname().machine]
    source, stubs, both = work / "stubs.s", work / "stubs.o", work / "both.o"
    lines = [f'.weak "{name}"\n.hidden "{name}"\n"{name}":\n {code}\n' for name in names]
    source.write_text('.section .note.GNU-stack,"",%progbits\n.text\n' + "".join(lines))
    subprocess.run(["cc", "-c", source, "-o", stubs], check=True)
    subprocess.run(["ld", "-r", "-o", both, out, stubs], check=True)
    both.replace(out)


if __name__ == "__main__":
    raise SystemExit(main(sys.argv[1:]))
