"""A small environment that imports CUDA's functions, the ghost built for it, and programs that run on it."""

import json
import os
import subprocess
import sys
import tempfile
from functools import cache
from pathlib import Path
from typing import Any

from runtime.ghost.build import library
from runtime.ghost.gpus import gpus

BUILT = Path(os.environ["SGL_TUNE_TESTS_BUILT"]) / "sgl-tune"  # as XDG_CACHE_HOME has it
NVIDIA = {  # a library, the version of its symbols, and functions in it
    "libcudart.so": (True, ("cudaMalloc", "cudaFree", "cudaFrobnicate")),
    "libnccl.so.2": (False, ("ncclAllReduce", "ncclUnheardOf")),
}
PINS = "Requires-Dist: nvidia-nccl-cu13==2.28.9; x\nRequires-Dist: nvidia-cudnn-cu13==9.19.0.56; x\n"
PRELUDE = """
import ctypes as C, json, os, sys
G = C.CDLL(os.environ["GHOST_FOLDER"] + "/libghost.so")
R = C.byref
heard = []
@C.CFUNCTYPE(None, C.c_int, C.c_char_p, C.c_void_p, C.c_size_t)
def say(kind, name, at, size): heard.append((kind, name.decode(), size))
G.ghost_listen(say)
def stats():
    out = (C.c_uint64 * 8)(); G.ghost_stats(out)
    names = ("launches", "mallocs", "frees", "copies", "graphs", "nodes", "used", "peak")
    return dict(zip(names, out))
def malloc(size):
    at = C.c_void_p(); error = G.cudaMalloc(R(at), C.c_size_t(size)); return error, at
def device(size): return malloc(size)[1]
def put(at, data, offset=0):
    return G.cudaMemcpy(C.c_void_p(at.value + offset), data, C.c_size_t(len(data)), 1)
def get(at, size, offset=0):
    out = C.create_string_buffer(size)
    G.cudaMemcpy(out, C.c_void_p(at.value + offset), C.c_size_t(size), 2)
    return out.raw
def marked(at, size, offset=0): return G.ghost_marked(C.c_void_p(at.value + offset), C.c_size_t(size))
def stream():
    out = C.c_void_p(); G.cudaStreamCreate(R(out)); return out
def event():
    out = C.c_void_p(); G.cudaEventCreate(R(out)); return out
class Dim3(C.Structure): _fields_ = [("x", C.c_uint), ("y", C.c_uint), ("z", C.c_uint)]
def launch(on): return G.cudaLaunchKernel(None, Dim3(1, 1, 1), Dim3(1, 1, 1), None, C.c_size_t(0), on)
def nodes(graph):
    count = C.c_size_t(); G.cudaGraphGetNodes(graph, None, R(count)); return count.value
def entry(name, version=13000):
    f, found = C.c_void_p(), C.c_int(9)
    status = G.cuGetProcAddress_v2(name.encode(), R(f), version, C.c_uint64(0), R(found))
    return status, f.value, found.value
address = lambda name: C.cast(getattr(G, name), C.c_void_p).value
def told(text): G.ghost_outside(text.encode())
def used(): return stats()["used"] >> 20
def counted():
    out = (C.c_uint64 * 16)(); G.ghost_counted(out); return list(out)
def graph(nodes, on=None):
    on = on or stream(); G.cudaStreamBeginCapture(on, 0)
    for _ in range(nodes): launch(on)
    one, exec_ = C.c_void_p(), C.c_void_p(); G.cudaStreamEndCapture(on, R(one))
    return G.cudaGraphInstantiateWithFlags(R(exec_), one, C.c_ulonglong(0)), exec_
def answer(*values): print(json.dumps(values))
"""


def compile_library(
    out: Path, source: str, soname: str, version: str = "", *linked: Path, path: str = ""
) -> None:
    """Compile a library. `path` is searched first for its libraries, as torch searches NVIDIA's wheels."""
    code, script = out.with_suffix(".c"), out.with_suffix(".map")
    code.write_text(source)
    script.write_text(f"{version} {{ global: *; }};")
    options = [f"-Wl,--version-script={script}"] if version else []
    options += [f"-Wl,--disable-new-dtags,-rpath,{path}"] if path else []
    command = ["cc", "-w", "-shared", "-fPIC", str(code), "-o", str(out), f"-Wl,-soname,{soname}"]
    subprocess.run([*command, *options, "-Wl,--no-as-needed", *map(str, linked)], check=True)
    code.unlink()
    script.unlink()


def make_environment(folder: Path, major: int = 13, extra: str = "") -> Path:
    """Make a site-packages with a torch that only imports functions of CUDA."""
    lib, nvidia = folder / "torch" / "lib", folder / "elsewhere"
    lib.mkdir(parents=True)
    nvidia.mkdir()
    made, calls = [], []
    for name, (has_version, functions) in NVIDIA.items():
        soname = f"{name}.{major}" if name.endswith(".so") else name
        source = "\n".join(f"int {function}(void) {{ return 99; }}" for function in functions)
        compile_library(nvidia / soname, source, soname, soname if has_version else "")
        made.append(nvidia / soname)
        calls += functions
    body = " + ".join(f"{function}()" for function in calls)
    source = "".join(f"int {function}(void);" for function in calls) + f"int use(void) {{ return {body}; }}"
    source += "int probe(void) { return cudaFrobnicate() + ncclUnheardOf(); }" + extra
    compile_library(lib / "libc10_cuda.so", source, "libc10_cuda.so", "", *made, path=str(nvidia))
    (folder / "torch" / "version.py").write_text(f"cuda: Optional[str] = '{major}.0'\n")
    information = folder / "torch-2.11.0.dist-info"
    information.mkdir()
    (information / "METADATA").write_text(PINS)
    return folder


@cache
def environment(major: int = 13) -> Path:
    return make_environment(Path(tempfile.mkdtemp(dir=BUILT.parent)) / f"site-{major}", major)


@cache
def built(major: int = 13) -> Path:
    """The ghost's libraries for that environment."""
    return library([environment(major)], BUILT)


def run(code: str, gpu: str = "h200", major: int = 13, **variables: str) -> Any:
    """Return what the program prints, run in a process of its own; of one value, that value itself."""
    settings = {**os.environ, "GHOST_FOLDER": str(built(major)), "GHOST_ROW": gpus()[gpu].row(), **variables}
    command = [sys.executable, "-S", "-c", PRELUDE + code]
    done = subprocess.run(command, env=settings, capture_output=True, text=True, timeout=120)
    assert done.returncode == 0, done.stderr
    values = json.loads(done.stdout)
    return values[0] if len(values) == 1 else values
