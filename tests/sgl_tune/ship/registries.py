"""Real registries on loopback: Debian's docker-registry, and a wire to it that breaks when it is told to."""

import base64
import datetime
import ipaddress
import json
import shutil
import socket
import subprocess
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from pathlib import Path

import pytest

PROGRAM = shutil.which("docker-registry")
SECONDS = 15
USER, PASSWORD = "carol", "secret"
_HTPASSWD = f"{USER}:$2b$04$e6uFeQFf9nUF3innUrCnfuwAM5on01HJORUBxp.oEi2.Jzl9D4R7m\n"
_USAGES = (
    "digital_signature", "content_commitment", "key_encipherment", "data_encipherment", "key_agreement",
    "key_cert_sign", "crl_sign", "encipher_only", "decipher_only",
)  # fmt: skip

needs_registry = pytest.mark.skipif(PROGRAM is None, reason="docker-registry is not installed")


def free_port() -> int:
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return int(probe.getsockname()[1])


class Registry:
    def __init__(self, folder: Path, tls: tuple[Path, Path] | None = None, password: bool = False) -> None:
        folder.mkdir(parents=True, exist_ok=True)
        self.port = free_port()
        self._folder, self._process = folder, None
        http: dict[str, object] = {"addr": f"127.0.0.1:{self.port}"}
        config = {
            "version": 0.1,
            "log": {"level": "error", "accesslog": {"disabled": True}},
            "storage": {"filesystem": {"rootdirectory": str(folder / "data")}},
            "http": http,
        }
        if tls:
            http["tls"] = {"certificate": str(tls[0]), "key": str(tls[1])}
        if password:
            (folder / "htpasswd").write_text(_HTPASSWD)
            config["auth"] = {"htpasswd": {"realm": "here", "path": str(folder / "htpasswd")}}
        (folder / "config.yml").write_text(json.dumps(config))  # JSON is YAML
        self.start()

    @property
    def url(self) -> str:
        return f"oci://localhost:{self.port}/caches/glm"

    def start(self) -> None:
        with (self._folder / "log").open("ab") as log:
            command = [str(PROGRAM), "serve", str(self._folder / "config.yml")]
            self._process = subprocess.Popen(command, stdout=log, stderr=log, cwd=self._folder)
        until = time.monotonic() + SECONDS
        while time.monotonic() < until:
            with suppress(OSError), socket.create_connection(("127.0.0.1", self.port), 1):
                return
            time.sleep(0.02)
        raise AssertionError((self._folder / "log").read_text())

    def kill(self) -> None:
        """-9"""
        self._process.kill()
        self._process.wait(SECONDS)


@contextmanager
def started(folder: Path, **how: object) -> Iterator[Registry]:
    registry = Registry(folder, **how)  # type: ignore[arg-type]
    try:
        yield registry
    finally:
        registry.kill()


class Wire:
    """Between a client and a registry; after so many bytes in one direction it does what it was told."""

    def __init__(self, port: int, after: int, then: Callable[[], object], up: bool = False) -> None:
        self._to, self._after, self._then, self._up = port, after, then, up
        self._listening = socket.create_server(("127.0.0.1", 0))
        self.port = self._listening.getsockname()[1]
        self._passed, self._lock = 0, threading.Lock()
        threading.Thread(target=self._accept, daemon=True).start()

    def _accept(self) -> None:
        with suppress(OSError):
            while True:
                near, _ = self._listening.accept()
                far = socket.create_connection(("127.0.0.1", self._to), SECONDS)
                for source, sink, counted in ((near, far, self._up), (far, near, not self._up)):
                    threading.Thread(target=self._carry, args=(source, sink, counted), daemon=True).start()

    def _carry(self, source: socket.socket, sink: socket.socket, counted: bool) -> None:
        with suppress(OSError):
            while piece := source.recv(16384):
                sink.sendall(piece)
                if counted and self._broke(len(piece)):
                    break
        for end in (source, sink):
            with suppress(OSError):
                end.shutdown(socket.SHUT_RDWR)

    def _broke(self, more: int) -> bool:
        with self._lock:
            before, self._passed = self._passed, self._passed + more
            if not before <= self._after < self._passed:
                return False
        self._then()
        return True

    def close(self) -> None:
        self._listening.close()


def log_in(docker: Path, port: int, password: str = PASSWORD) -> None:
    """As `docker login` keeps it."""
    docker.mkdir(exist_ok=True)
    auth = base64.b64encode(f"{USER}:{password}".encode()).decode()
    (docker / "config.json").write_text(json.dumps({"auths": {f"localhost:{port}": {"auth": auth}}}))


def certificates(folder: Path) -> tuple[Path, tuple[Path, Path]]:
    """An authority of our own, and what it signed for localhost."""
    from cryptography import x509
    from cryptography.hazmat.primitives import hashes, serialization
    from cryptography.hazmat.primitives.asymmetric import ec

    folder.mkdir(parents=True, exist_ok=True)
    now = datetime.datetime.now(datetime.timezone.utc)

    def named(name: str) -> x509.Name:
        return x509.Name([x509.NameAttribute(x509.NameOID.COMMON_NAME, name)])

    def signed(name: str, key: ec.EllipticCurvePrivateKey, is_authority: bool) -> x509.Certificate:
        made = x509.CertificateBuilder().subject_name(named(name)).issuer_name(named("authority"))
        made = made.public_key(key.public_key()).serial_number(x509.random_serial_number())
        made = made.not_valid_before(now - datetime.timedelta(days=1))
        made = made.not_valid_after(now + datetime.timedelta(days=30))
        made = made.add_extension(x509.BasicConstraints(is_authority, None), critical=True)
        usage = dict.fromkeys(_USAGES, False) | {"digital_signature": True, "key_cert_sign": is_authority}
        made = made.add_extension(x509.KeyUsage(**usage), critical=True)
        loopback = x509.IPAddress(ipaddress.ip_address("127.0.0.1"))
        made = made.add_extension(x509.SubjectAlternativeName([x509.DNSName("localhost"), loopback]), False)
        signer = authority.public_key()
        made = made.add_extension(x509.AuthorityKeyIdentifier.from_issuer_public_key(signer), False)
        made = made.add_extension(x509.SubjectKeyIdentifier.from_public_key(key.public_key()), False)
        return made.sign(authority, hashes.SHA256())

    authority, server = ec.generate_private_key(ec.SECP256R1()), ec.generate_private_key(ec.SECP256R1())
    pem = serialization.Encoding.PEM
    paths = [folder / name for name in ("ca.pem", "server.pem", "server.key")]
    paths[0].write_bytes(signed("authority", authority, True).public_bytes(pem))
    paths[1].write_bytes(signed("localhost", server, False).public_bytes(pem))
    kind, unlocked = serialization.PrivateFormat.PKCS8, serialization.NoEncryption()
    paths[2].write_bytes(server.private_bytes(pem, kind, unlocked))
    return paths[0], (paths[1], paths[2])
