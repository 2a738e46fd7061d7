"""What is pasted after `--` as one string: shell lines, containers, manifests; and a --config file."""

from __future__ import annotations

from pathlib import Path
from random import Random

from runtime.server.releases import RELEASES
from sgl_tune.deployment.launch import launch_of
from sgl_tune.deployment.server_command import parse_server_command, read_launch
from sgl_tune.errors import UsageError
from tests.fuzz.mutate import mutated, of_bytes
from tests.fuzz.parser import Parser
from tests.oracle.published_commands import listed

_COMMANDS = tuple(command.text.encode() for command in listed())
# fmt: off
_CONFIGS = (
    b"model-path: &m org/m\ntp-size: 8\nserved-model-name: *m\nenable-metrics: on\ncuda-graph-bs: [1, 2]\n",
    b"base: &base {tp: 8}\n<<: *base\njson-model-override-args: {a: {b: [1, ~, 2001-01-01, 0x1F]}}\n---\n",
)
_PIECES = (
    b"$(", b"`", b"${", b"\\\n", b"'", b'"', b"<<EOF\n", b"&", b";", b"|", b"> ", b"2>&1", b"{a,b}", b"*",
    b"~", b"\n- ", b": ", b"&a ", b"*a", b"!!python/name:os.system", b"{{", b"\t", b"\r\n", b"---\n",
    b"\xc2\xa0",
)
# fmt: on


def _made(random: Random) -> tuple[bool, str]:
    is_config = random.random() < 0.3
    raw = mutated(_CONFIGS if is_config else _COMMANDS, random, of_bytes, _of_pieces)
    return is_config, raw.decode("utf-8", "replace").replace("\0", "")


def _of_pieces(raw: bytes, random: Random) -> bytes:
    at = random.randrange(len(raw) + 1)
    return raw[:at] + random.choice(_PIECES) * random.choice((1, 1, 1, 2, 5000)) + raw[at:]


def _read(made: tuple[bool, str], folder: Path) -> None:
    is_config, text = made
    release = RELEASES[len(text) % len(RELEASES)]
    if is_config:
        (folder / "server.yaml").write_text(text)
        parse_server_command(["sglang", "serve", "--model-path", "m", "--config", "server.yaml"], release)
    else:
        read_launch(launch_of([text]), release)


PARSER = Parser(_made, _read, ours=(UsageError,))
