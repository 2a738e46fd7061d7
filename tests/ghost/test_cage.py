"""In the cage, a start's attempts to leave its work folder fail, by the kernel and by Python's audit hook."""

import os
import tempfile
from pathlib import Path

import pytest

from runtime.ghost.cage import lacking
from runtime.ghost.inside.cage import landlock
from tests.ghost.caged import Said, caged
from tests.ghost.listening import Listener, listener
from tests.programs import program
from tests.warm.processes import until

__all__ = ["listener"]

_NATIVE = """
import ctypes
libc = ctypes.CDLL(None, use_errno=True)
def native(name, *arguments):
    result = getattr(libc, name)(*arguments)
    print(name, "failed" if result < 0 else "worked", ctypes.get_errno())
"""


@pytest.fixture
def work(tmp_path: Path) -> Path:
    return tmp_path / "work"


@pytest.fixture
def outside(tmp_path: Path) -> Path:
    folder = tmp_path / "outside"
    folder.mkdir()
    return folder


def holds(said: Said, what: str) -> bool:
    return any(one.startswith(what) for one in said.holds)


def needs(here: Said, what: str) -> None:
    if not holds(here, what):
        pytest.skip(f"this kernel cannot hold {what}")


@pytest.fixture(scope="module")
def here(tmp_path_factory: pytest.TempPathFactory) -> Said:
    """What entering the cage returns on this machine."""
    return caged(tmp_path_factory.mktemp("here") / "work", "")


def test_entering_the_cage_returns_the_protections(here: Said) -> None:
    assert here.code == 0, here.output
    assert holds(here, "imports") and holds(here, "CPU seconds")
    assert holds(here, "files") == bool(landlock.abi())


def test_ordinary_work_is_possible_inside(work: Path, tmp_path: Path) -> None:
    body = """
    import subprocess, multiprocessing, tempfile, socket, json, pickle, os
    with tempfile.TemporaryDirectory() as folder:
        open(folder + "/a", "w").write("x")
        os.rename(folder + "/a", folder + "/b")
    print(subprocess.run(["sh", "-c", "echo shell"], capture_output=True, text=True).stdout)
    lock = multiprocessing.Lock(); lock.acquire(); lock.release()
    server = socket.create_server(("127.0.0.1", 0))
    client = socket.create_connection(server.getsockname()); client.close()
    socket.getaddrinfo("localhost", 80)
    open("/dev/null", "w").write("x"); open(told["writable"][0] + "/kept", "w").write("x")
    pickle.loads(pickle.dumps([json.JSONDecoder, {"a": {1}}]))
    place = os.path.abspath("generated.py")
    open(place, "w").write("print('generated')")
    exec(compile(open(place).read(), place, "exec"))
    print(os.listdir("/") != [], open("/etc/passwd").readline() != "")
    """
    cache = tmp_path / "cache"
    cache.mkdir()
    said = caged(work, body, writable=(cache,))
    assert (said.code, said.tried) == (0, ()), said
    assert said.output.split() == ["shell", "generated", "True", "True"]
    assert (cache / "kept").exists()


TRIED = {
    "write": "open({outside!r} + '/file', 'w')",
    "write mode": "os.chmod({outside!r} + '/program', 0o777)",
    "write owner": "os.chown({outside!r} + '/program', 1, 1)",
    "write folder": "os.mkdir({outside!r} + '/folder')",
    "write link": "os.symlink('a', {outside!r} + '/link')",
    "write removal": "os.remove({outside!r} + '/program')",
    "write renaming": "os.rename({outside!r} + '/program', 'mine')",
    "network": "socket.create_connection(('192.0.2.1', 80), timeout=5)",
    "network name": "socket.getaddrinfo('example.org', 443)",
    "network datagram": "socket.socket(socket.AF_INET, socket.SOCK_DGRAM).sendto(b'x', ('192.0.2.1', 53))",
    "network web": "__import__('urllib.request').request.urlopen('http://192.0.2.1/cubin', timeout=5)",
    "socket": "socket.socket(socket.AF_UNIX).connect({outside!r} + '/service')",
    "code": "sys.path.insert(0, {outside!r}); import foreign",
    "code run": "exec(compile('1', {outside!r} + '/foreign.py', 'exec'))",
    "code loaded": "__import__('ctypes').CDLL({outside!r} + '/foreign.so')",
    "code pickled": "__import__('pickle').loads(b'cos\\nsystem\\n(S\"touch mark\"\\ntR.')",
    "program": "__import__('subprocess').run([{outside!r} + '/program'])",
    "program shell": "os.system('touch mark')",
    "program spawned": "os.posix_spawn({outside!r} + '/program', ['program'], {{}})",
    "program executed": "os.execv({outside!r} + '/program', ['program'])",
}


@pytest.mark.parametrize("name", TRIED)
def test_what_is_tried_is_refused_and_named(work: Path, outside: Path, name: str) -> None:
    (outside / "foreign.py").write_text(f"open({str(outside / 'ran')!r}, 'w')")
    (outside / "foreign.so").write_bytes(b"")
    program(outside / "program", f"touch {outside / 'ran'}")
    before = sorted(outside.iterdir())
    said = caged(work, "import socket\n" + TRIED[name].format(outside=str(outside)))
    assert said.code == 1, said.output
    assert said.kinds == {name.split()[0]}, said
    assert sorted(outside.iterdir()) == before
    assert not list(work.rglob("mark"))


def test_a_model_s_own_code_runs_only_where_it_was_allowed(work: Path) -> None:
    modules = work / ".cache/huggingface/modules"
    modules.mkdir(parents=True)
    (modules / "own.py").write_text("print('own code ran')")
    body = f"sys.path.insert(0, {str(modules)!r}); import own"
    refused, allowed = caged(work, body), caged(work, body, code=(modules,))
    assert refused.kinds == {"code"} and "own code ran" not in refused.output
    assert (allowed.code, allowed.output) == (0, "own code ran\n")


def test_native_code_writes_nothing_elsewhere(work: Path, outside: Path, here: Said) -> None:
    needs(here, "files")
    (outside / "there").write_text("kept")
    place = str(outside).encode()
    body = f"""{_NATIVE}
native("open", {place + b"/new"!r}, 0o101, 0o600)
native("open", {place + b"/there"!r}, 1)
native("truncate", {place + b"/there"!r}, 0)
native("unlink", {place + b"/there"!r})
native("mkdir", {place + b"/folder"!r}, 0o700)
native("symlink", b"/etc/passwd", {place + b"/link"!r})
native("rename", {place + b"/there"!r}, b"mine")
native("link", {place + b"/there"!r}, b"mine")
native("mknod", b"device", 0o20600, 0x103)
libc.system(b"echo x > {outside}/shell; echo shell >&2")
"""
    said = caged(work, body)
    assert said.code == 0 and "worked" not in said.output, said.output
    assert [one.name for one in outside.iterdir()] == ["there"]
    assert (outside / "there").read_text() == "kept"


def test_links_out_of_the_work_folder_lead_to_nothing_writable(work: Path, outside: Path, here: Said) -> None:
    needs(here, "files")
    work.mkdir()
    (work / "out").symlink_to(outside)
    (work / "file").symlink_to(outside / "file")
    body = f"""{_NATIVE}
native("open", b"out/new", 0o101, 0o600)
native("open", b"file", 0o101, 0o600)
native("open", b"../outside/new", 0o101, 0o600)
for path in ("out/new", "file", "../outside/new"):
    try: open(path, "w")
    except PermissionError: print("refused")
"""
    said = caged(work, body)
    assert "worked" not in said.output and said.output.count("refused") == 3, said.output
    assert not list(outside.iterdir())


def test_no_packet_reaches_a_port_of_this_machine(work: Path, listener: Listener, here: Said) -> None:
    needs(here, "network")
    body = f"""{_NATIVE}
import struct, socket
address = struct.pack("<H", 2) + struct.pack(">H", {listener.port}) + socket.inet_aton("127.0.0.1") + bytes(8)
native("connect", libc.socket(2, 1, 0), address, 16)
"""
    said = caged(work, body)
    assert "connect failed" in said.output
    assert listener.came() == 0


@pytest.mark.parametrize(
    "call",
    [
        'native("socket", 17, 3, 0)',  # packets
        'native("socket", 2, 3, 1)',  # raw
        'native("socket", 40, 1, 0)',  # a virtual machine's host
        'native("unshare", 0x10000000)',
        'native("setns", os.open("/proc/self/ns/net", os.O_RDONLY), 0)',
        'native("ptrace", 16, os.getppid(), 0, 0)',
        'native("mount", b"none", b"/", 0, 16384, 0)',
        'native("syscall", 425, 1, 0)',
    ],
)
def test_calls_that_change_or_look_into_the_machine_fail(work: Path, here: Said, call: str) -> None:
    needs(here, "system calls")
    assert " failed" in caged(work, _NATIVE + call).output


def test_no_signal_reaches_another_process(work: Path, here: Said) -> None:
    needs(here, "signals")
    said = caged(work, f"import os\ntry: os.kill({os.getpid()}, 0)\nexcept PermissionError: print('refused')")
    assert said.output == "refused\n"


def test_a_gpu_s_device_cannot_be_opened(work: Path, here: Said) -> None:
    needs(here, "files")
    devices = [path for path in Path("/dev").glob("nvidia*") if path.is_char_device()] or [Path("/dev/mem")]
    body = f"""
    for path in {[*map(str, devices)]!r}:
        try: open(path, "rb"); print("opened")
        except OSError: print("refused")
    """
    said = caged(work, body)
    assert set(said.output.split()) == {"refused"}


def test_core_files_and_cpu_seconds_are_limited(work: Path) -> None:
    body = """
    import resource
    print(resource.getrlimit(resource.RLIMIT_CORE), resource.getrlimit(resource.RLIMIT_CPU)[0] < 10_000)
    """
    assert caged(work, body).output == "(0, 0) True\n"


def test_it_dies_with_its_parent(work: Path) -> None:
    """The process that `caged` starts forks and dies. The fork has entered the cage and would stay alive."""
    before = """
    mother = os.getpid()
    if os.fork():
        import time, signal
        while not os.path.exists("entered"):
            time.sleep(0.05)
        os.kill(mother, signal.SIGKILL)
    """
    body = "import time\nprint(os.getpid(), flush=True); open('entered', 'w').close(); time.sleep(600)"
    said = caged(work, body, before=before)
    assert said.code == -9
    until(lambda: not Path(f"/proc/{int(said.output)}/exe").is_symlink(), 60)


def test_what_a_start_starts_cannot_leave_its_group(work: Path, here: Said) -> None:
    needs(here, "system calls")
    body = """
    import subprocess, time
    begun, begins = os.pipe()
    child = os.fork()
    if not child:
        os.setsid(); cage.keep_together()
        inner = subprocess.Popen(["sleep", "600"], start_new_session=True)
        print(os.getpgid(inner.pid) == os.getpid(), inner.pid, flush=True)
        os.write(begins, b"x"); time.sleep(600)
    os.close(begins); os.read(begun, 1); os.killpg(child, 9); os.waitpid(child, 0)
    """
    same, inner = caged(work, body).output.split()
    assert same == "True"
    until(lambda: not Path(f"/proc/{inner}/exe").is_symlink(), 60)


def test_what_a_machine_lacks_is_named(here: Said) -> None:
    assert len(lacking([])) == 5
    assert lacking(here.holds) == () or landlock.abi() < 6 or not holds(here, "network")


def test_a_work_folder_in_shared_memory_stays_in_sight() -> None:
    if not os.access("/dev/shm", os.W_OK):
        pytest.skip("there is no /dev/shm")
    with tempfile.TemporaryDirectory(dir="/dev/shm") as folder:
        said = caged(Path(folder) / "work", "open('made', 'w').write('x'); print(os.listdir('.'))")
        assert said.output == "['made']\n"
        assert (Path(folder) / "work/made").exists()
