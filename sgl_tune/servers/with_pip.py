"""The tasks of `server add` that run in the new server's own pip: `with_pip.py PARENT WORK`, with a JSON
request on stdin. It is run by its path, with that server's Python and -I. It downloads through pip's own
session, so that the user's index, proxy, certificates and passwords apply, and it dies with its parent.
JSON lines on stdout show the progress; a line with "error" is the last one."""

import compileall
import contextlib
import ctypes
import hashlib
import json
import os
import re
import signal
import sys
import urllib.parse
import urllib.request
import zipfile
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from datetime import timedelta
from pathlib import Path
from typing import IO, Any

_PR_SET_PDEATHSIG = 1
_CHUNK = 1 << 17
_AT_ONCE = 8
_FILE_NAME = re.compile(r"[\w.+!-]+\.whl")
_OF_HEADERS = re.compile(
    r"(?:[\w.+-]+/)*include/(?:[\w.+-]+/)*[\w.+-]+|[\w.+-]+\.dist-info/(?:METADATA|WHEEL)"
)
_GROWTH = 3  # estimate of unpacked size / size, if the index cannot send parts
_STARTS_AGAIN = 200  # status of a server that ignores a range and sends the whole file


def main(parent: int, work: str) -> None:
    ctypes.CDLL(None).prctl(_PR_SET_PDEATHSIG, signal.SIGKILL)
    if os.getppid() != parent:
        os._exit(1)
    request = json.load(sys.stdin)
    works = {"pip": _pip, "measure": _measure, "fetch": _fetch, "headers": _headers, "compile": _compile}
    try:
        works[work](request)
    except Exception as error:
        reason = str(error).strip().splitlines() or [""]
        _say(error=f"{type(error).__name__}: {reason[0]}")
        sys.exit(1)


def _say(**fields: Any) -> None:
    print(json.dumps(fields), file=sys.__stdout__, flush=True)


def _pip(request: dict[str, Any]) -> None:
    """Run one pip command. With `report` it chooses packages: those that the index had when SGLang was
    released, if it gives dates, within the bounds that packages' extras set."""
    arguments, report = request["arguments"], request.get("report")
    arguments += ["--report", report] if report else []
    until = _uploaded(request["release"]) if report else []
    if not (until and _runs([*arguments, *until])):
        until = []
        if not _runs(arguments):
            _say(error="pip failed")
            sys.exit(1)
    if report and (bounds := _bounds(json.loads(Path(report).read_text()))):
        _runs([*arguments, *until, *bounds])  # if it fails, the first report stays


def _runs(arguments: list[str]) -> bool:
    from pip._internal.cli.main import main as pip_main

    with contextlib.redirect_stdout(sys.stderr):  # stderr is the log
        return pip_main(arguments) == 0


@contextlib.contextmanager
def _session(finds: bool = False) -> Iterator[Any]:
    """Yield pip's session, or its finder of packages."""
    from pip._internal.commands import create_command

    command: Any = create_command("download")
    options, _ = command.parse_args(["--only-binary=:all:", "nothing"])
    with command.main_context():
        session = command.get_default_session(options)
        yield command._build_package_finder(options, session) if finds else session


def _uploaded(release: str) -> list[str]:
    """Return the option that limits pip to one day after the release's upload: dependencies may come
    later."""
    with contextlib.redirect_stdout(sys.stderr), _session(finds=True) as finder:
        found = [one.link for one in finder.find_all_candidates("sglang") if str(one.version) == release]
    times = [time for link in found if (time := getattr(link, "upload_time", None))]
    return [f"--uploaded-prior-to={(max(times) + timedelta(days=1)).isoformat()}"] if times else []


def _bounds(report: dict[str, Any]) -> list[str]:
    """Return bounds that pip ignores because they stand in an extra: transformers[kernels] bounds
    `kernels`, also if another package requires `kernels`. A pinned package is left as it is."""
    from pip._vendor.packaging.requirements import Requirement
    from pip._vendor.packaging.utils import canonicalize_name

    chosen = [one["metadata"] for one in report["install"]]
    versions = {canonicalize_name(one["name"]): one["version"] for one in chosen}
    found: dict[str, str] = {}
    pinned: set[str] = set()
    for need in (Requirement(line) for one in chosen for line in one.get("requires_dist", [])):
        name = canonicalize_name(need.name)
        if need.marker is None or need.marker.evaluate({"extra": ""}):
            pinned |= {name for bound in need.specifier if bound.operator in ("==", "===")}
        elif name in versions and need.marker.evaluate({"extra": name}):
            fits = need.specifier.contains(versions[name], prereleases=True)
            found |= {} if fits else {name: f"{name}{need.specifier}"}
    return [bound for name, bound in found.items() if name not in pinned]


def _measure(request: dict[str, Any]) -> None:
    """Print the size of each wheel, packed and unpacked."""
    with _session() as session, ThreadPoolExecutor(_AT_ONCE) as pool:
        for size, unpacked in pool.map(lambda url: _sizes(session, url), request["urls"]):
            _say(size=size, unpacked=unpacked)


def _sizes(session: Any, url: str) -> tuple[int, int]:
    from pip._internal.network.lazy_wheel import HTTPRangeRequestUnsupported

    local = _local(url)
    if local is not None:
        size = local.stat().st_size
    else:
        answer = session.head(url, headers={"Accept-Encoding": "identity"}, allow_redirects=True)
        answer.raise_for_status()
        size = int(answer.headers["Content-Length"])
    try:
        with _opened(session, url) as wheel:
            return size, sum(member.file_size for member in wheel.infolist())
    except HTTPRangeRequestUnsupported:
        return size, size * _GROWTH


@contextlib.contextmanager
def _opened(session: Any, url: str) -> Iterator[zipfile.ZipFile]:
    """Open a remote wheel without downloading it: only the needed parts are fetched."""
    from pip._internal.network.lazy_wheel import LazyZipOverHTTP

    local = _local(url)
    file: IO[bytes] | Any = LazyZipOverHTTP(url, session) if local is None else local.open("rb")
    with file, zipfile.ZipFile(file) as wheel:
        yield wheel


def _local(url: str) -> Path | None:
    parts = urllib.parse.urlsplit(url)
    return Path(urllib.request.url2pathname(parts.path)) if parts.scheme == "file" else None


def _fetch(request: dict[str, Any]) -> None:
    """Download every wheel into the folder, continuing what an earlier attempt began."""
    folder = Path(request["folder"])
    with _session() as session:
        for wheel in request["wheels"]:
            _say(path=str(_fetched(session, folder, wheel)))


def _fetched(session: Any, folder: Path, wheel: dict[str, Any]) -> Path:
    local = _local(wheel["url"])
    name = urllib.parse.unquote(urllib.parse.urlsplit(wheel["url"]).path.rpartition("/")[2])
    if not _FILE_NAME.fullmatch(name):
        raise ValueError(f"{wheel['url']}: is no wheel")
    path = local or folder / name
    part = folder / f"{name}.part"
    if not path.exists():
        _download(session, wheel["url"], part)
        _check(part, wheel, name)
        part.replace(path)
    else:
        _check(path, wheel, name)
        _say(bytes=path.stat().st_size)
    return path


def _download(session: Any, url: str, part: Path) -> None:
    got = part.stat().st_size if part.exists() else 0
    asked = {"Accept-Encoding": "identity", **({"Range": f"bytes={got}-"} if got else {})}
    answer = session.get(url, headers=asked, stream=True)
    if answer.status_code == 416:  # the file was already complete
        _say(bytes=got)
        return
    answer.raise_for_status()
    if answer.status_code == _STARTS_AGAIN:
        got = 0
    _say(bytes=got)
    with part.open("ab" if got else "wb") as file:
        for chunk in iter(lambda: answer.raw.read(_CHUNK), b""):
            file.write(chunk)
            _say(bytes=len(chunk))


def _check(path: Path, wheel: dict[str, Any], name: str) -> None:
    digest = hashlib.sha256()
    with path.open("rb") as file:
        for chunk in iter(lambda: file.read(_CHUNK), b""):
            digest.update(chunk)
    if digest.hexdigest() != wheel["sha256"]:
        if _local(wheel["url"]) is None:
            path.unlink()
        raise ValueError(f"{name}: not the bytes that the index promised, sha256 {digest.hexdigest()}")


def _headers(request: dict[str, Any]) -> None:
    """Unpack only headers and the .dist-info of wheels whose libraries are left out, so that pip finds
    them."""
    from pip._internal.network.lazy_wheel import HTTPRangeRequestUnsupported

    with _session() as session:
        for wheel in request["wheels"]:
            packages = Path(request["packages"])
            try:
                with _opened(session, wheel["url"]) as archive:
                    _unpack_headers(archive, packages)
            except HTTPRangeRequestUnsupported:
                path = _fetched(session, Path(request["folder"]), wheel)
                with zipfile.ZipFile(path) as archive:
                    _unpack_headers(archive, packages)
                path.unlink()
            _say(name=wheel["name"])


def _unpack_headers(archive: zipfile.ZipFile, packages: Path) -> None:
    """Unpack the headers of a wheel. RECORD is written last and marks the package as finished."""
    names = [name for name in archive.namelist() if _OF_HEADERS.fullmatch(name) and "/../" not in f"/{name}"]
    info = next(name.partition("/")[0] for name in names if name.endswith(".dist-info/METADATA"))
    for name in names:
        path = packages / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_bytes(archive.read(name))
    (packages / info / "INSTALLER").write_text("sgl-tune\n")
    listed = [*names, f"{info}/INSTALLER", f"{info}/RECORD"]
    part = packages / info / "RECORD.part"
    part.write_text("".join(f"{name},,\n" for name in listed))
    part.replace(packages / info / "RECORD")


def _compile(request: dict[str, Any]) -> None:
    """Compile every package that has no bytecode. Files that are not Python of this version are skipped."""
    for folder in sorted(Path(request["packages"]).iterdir()):
        if folder.is_dir() and not folder.name.endswith(".dist-info"):
            compileall.compile_dir(folder, quiet=2, workers=0)
            _say(name=folder.name)


if __name__ == "__main__":
    main(int(sys.argv[1]), sys.argv[2])
