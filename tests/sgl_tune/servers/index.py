"""A package index of tiny wheels on loopback. It sends parts of files, and can let one download hang."""

import hashlib
import json
import os
import threading
import zipfile
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from datetime import datetime, timezone
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path

from tests.sgl_tune.servers.made import CUDA_13

_JSON = "application/vnd.pypi.simple.v1+json"
LOOSE = ("nvidia-cuda-nvcc", "readers", "kernels", "codecs==2.0")
_RELEASED = 1_780_000_000
_FILLING = "0123456789abcdef" * 40_000  # so that a download takes more than one read


def wheel(
    folder: Path,
    name: str,
    version: str,
    files: Mapping[str, str],
    needs: Sequence[str] = (),
    days_later: int = 0,
) -> Path:
    """`days_later`: after the release, in the eyes of the index."""
    path = folder / f"{name}-{version}-py3-none-any.whl"
    info = f"{name}-{version}.dist-info"
    metadata = f"Metadata-Version: 2.1\nName: {name}\nVersion: {version}\n"
    contents = {
        **files,
        f"{info}/METADATA": metadata + "".join(f"Requires-Dist: {need}\n" for need in needs),
        f"{info}/WHEEL": "Wheel-Version: 1.0\nGenerator: test\nRoot-Is-Purelib: true\nTag: py3-none-any\n",
    }
    record = "".join(f"{file},,\n" for file in (*contents, f"{info}/RECORD"))
    with zipfile.ZipFile(path, "w") as archive:
        for file, text in {**contents, f"{info}/RECORD": record}.items():
            archive.writestr(file, text)
    os.utime(path, (_RELEASED + days_later * 86_400,) * 2)
    return path


def release(folder: Path, version: str = "0.5.17") -> None:
    """SGLang, torch, FlashInfer, a library of NVIDIA's, and compilers of two CUDA releases."""
    code = {"sglang/__init__.py": "", "sglang/data.txt": _FILLING}
    wheel(folder, "sglang", version, code, ["torch==2.11.0", "flashinfer_python==0.7.2", *LOOSE])
    cuda = ["nvidia-cublas", "nvidia-cuda-runtime"]
    wheel(folder, "torch", "2.11.0", {"torch/__init__.py": "", "torch/version.py": CUDA_13}, cuda)
    wheel(folder, "flashinfer_python", "0.7.2", {"flashinfer/__init__.py": ""})
    # What the release takes any of: the newest of those days, and what another package says it can use.
    bounds = ["kernels<2; extra == 'kernels'", "codecs<2; extra == 'codecs'"]
    wheel(folder, "readers", "2.0", {}, bounds)
    wheel(folder, "readers", "3.0", {}, bounds, days_later=2)
    for one in ("kernels", "codecs"):
        wheel(folder, one, "1.0", {})
        wheel(folder, one, "2.0", {})
    library = {"nvidia/cu13/lib/libcublas.so.13": _FILLING, "nvidia/cu13/include/cublas_v2.h": "// a header"}
    wheel(folder, "nvidia_cublas", "13.1.0.3", library)
    wheel(folder, "nvidia_cuda_runtime", "13.0.96", {"nvidia/cu13/include/cuda.h": ""})
    for cuda_release in ("13.0.88", "13.5.37"):
        wheel(folder, "nvidia_cuda_nvcc", cuda_release, {"nvidia/cu13/bin/nvcc": cuda_release})
        for part in ("nvidia_cuda_crt", "nvidia_nvvm", "nvidia_cuda_cccl"):
            wheel(folder, part, cuda_release, {f"nvidia/cu13/{part}.txt": cuda_release})


class Index:
    """`asked`: each request since `begin`, as (method, file, range). A download of `stuck` stops halfway for
    ever, one of `spoiled` has other bytes than promised."""

    def __init__(self, folder: Path, port: int) -> None:
        self.folder, self.port = folder, port
        self.hangs = self.released = threading.Event()
        self.begin()

    def begin(self) -> None:
        self.released.set()
        self.asked: list[tuple[str, str, str]] = []
        self.stuck = self.spoiled = ""
        self.hangs, self.released = threading.Event(), threading.Event()

    @property
    def environment(self) -> dict[str, str]:
        """As a user's own pip configuration would name it."""
        url = f"http://127.0.0.1:{self.port}/simple"
        return {"PIP_CONFIG_FILE": "/dev/null", "PIP_INDEX_URL": url, "PIP_FIND_LINKS": "", "no_proxy": "*"}


@contextmanager
def served(folder: Path) -> Iterator[Index]:
    class Handler(_Handler):
        pass

    with ThreadingHTTPServer(("127.0.0.1", 0), Handler) as server:
        server.daemon_threads = True
        Handler.index = index = Index(folder, server.server_address[1])
        threading.Thread(target=server.serve_forever, daemon=True).start()
        try:
            yield index
        finally:
            index.released.set()
            server.shutdown()


class _Handler(BaseHTTPRequestHandler):
    index: Index

    def log_message(self, *_: object) -> None:
        pass

    def do_HEAD(self) -> None:
        self.do_GET()

    def do_GET(self) -> None:
        kind, _, name = self.path.strip("/").partition("/")
        self.index.asked.append((self.command, name, self.headers.get("Range", "")))
        if kind == "simple":
            wheels = self.index.folder.glob("*.whl")
            found = [one for one in wheels if one.name.partition("-")[0].replace("_", "-") == name]
            told = {"meta": {"api-version": "1.1"}, "name": name, "files": list(map(_file, found))}
            self._send(200 if found else 404, json.dumps(told).encode(), _JSON)
            return
        body = (self.index.folder / name).read_bytes()
        if name == self.index.spoiled:
            body = body.replace(b"0123456789", b"9876543210")
        first, _, last = self.headers.get("Range", "").removeprefix("bytes=").partition("-")
        if not first and not last:
            self._send(200, body, "application/zip", name)
            return
        start, end = int(first or 0), int(last or len(body) - 1)
        if not first:
            start, end = len(body) - int(last), len(body) - 1
        told = {"Content-Range": f"bytes {start}-{end}/{len(body)}"}
        self._send(206, body[start : end + 1], "application/zip", headers=told)

    def _send(
        self, code: int, body: bytes, kind: str, name: str = "", headers: Mapping[str, str] | None = None
    ) -> None:
        self.send_response(code)
        for key, value in {
            "Content-Type": kind,
            "Content-Length": str(len(body)),
            "Accept-Ranges": "bytes",
            **(headers or {}),
        }.items():
            self.send_header(key, value)
        self.end_headers()
        if self.command == "HEAD":
            return
        if name and name == self.index.stuck:
            self.wfile.write(body[: len(body) // 2])
            self.wfile.flush()
            released = self.index.released
            self.index.hangs.set()
            released.wait()
            return
        self.wfile.write(body)


def _file(file: Path) -> dict[str, object]:
    digest = hashlib.sha256(file.read_bytes()).hexdigest()
    uploaded = datetime.fromtimestamp(file.stat().st_mtime, timezone.utc).isoformat()
    hashes = {"sha256": digest}
    return {"filename": file.name, "url": f"/files/{file.name}", "hashes": hashes, "upload-time": uploaded}
