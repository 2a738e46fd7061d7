"""The commands of docs/ship.md and docs/fleet.md, as a reader types them: one by one, from top to bottom."""

from __future__ import annotations

import re
import shutil
from collections.abc import Mapping
from pathlib import Path

from tests.examples.whole.machine import COSIGN, KEY_PASSWORD, Machine
from tests.examples.whole.statements import of_page
from tests.examples.whole.told import Replacements, Told
from tests.sgl_tune.running import ROOT
from tests.sgl_tune.ship.s3 import Server
from tests.sgl_tune.stores.make import whole_root

_COLD = "2026-09-deepseek-v4-spark-tp3.log"  # a start that built something


def _reader(machine: Machine, told: Told, name: str) -> Path:
    """A folder with example caches, and sgl-tune installed without any extra."""
    folder = machine.made(name)
    machine.environment_of(machine.laptop)
    shutil.copytree(ROOT / "cache-examples", folder / "cache-examples", dirs_exist_ok=True)
    shutil.copytree(ROOT / "cache-examples" / "cache", folder / "cache", dirs_exist_ok=True)
    shutil.copy(ROOT / "cache-examples" / "h200.env.json", folder / "env.json")
    told.replace("the server's caches, env.json", "cache-examples/cache, cache-examples/h200.env.json")
    told.replace("sgl-tune of a package index", "the wheel, installed before without any extra")
    machine.run(told, f"pip install -q {machine.wheel}", folder, image=machine.laptop)
    return folder


def _typed(
    machine: Machine, told: Told, page: str, folder: Path, also: Replacements, env: Mapping[str, str]
) -> None:
    given = {
        "SGLANG_CACHE_DIR": str(folder / "cache"),
        "DOCKER_CONFIG": str(machine.docker),
        **env,
    }
    for command in of_page(ROOT / "docs" / page):
        word = command.split()[0]
        if shutil.which(word) is None and word not in ("for", "sgl-tune"):
            told.leave_out(command, f"no {word}")
            continue
        bad = int("--fleet" in command)  # no node of these is good
        said = machine.run(told, command, folder, env=given, also=also, image=machine.laptop, expected=bad)
        if digest := re.search(r"sha256:[0-9a-f]{64}", said):
            (folder / f"{_packed(command)}.digest").write_text(digest[0])


def _packed(command: str) -> str:
    found = re.search(r" pack .*-o (\S+)", command)
    return found[1] if found else "other"


def ship(machine: Machine, told: Told) -> None:
    folder = _reader(machine, told, "ship")
    whole_root(folder / "root")
    shutil.copy(COSIGN / "standard.key", folder / "cosign.key")
    shutil.copy(COSIGN / "standard.pub", folder / "cosign.pub")
    (folder / "cosign.key").chmod(0o600)
    told.replace("`cosign generate-key-pair`", "a pair that its code made, tests/sgl_tune/ship/cosign")
    told.replace("glm.tar.gz", "cache.tar.gz by another name")

    def digest(found: re.Match[str]) -> str:
        shutil.copy(folder / "cache.tar.gz", folder / "glm.tar.gz")
        return (folder / "cache.tar.gz.digest").read_text()

    values: Replacements = (
        (r"\b8e60\b", "4393"),
        (r"/srv/root\b", str(folder / "root")),
        (r"sha256:4f0c\.\.\.", digest),
        (r"--gpu b200", "--gpu h200"),
        (r"(genpkey .*-aes256)", r"\1 -pass env:COSIGN_PASSWORD"),
        (r"(openssl pkey) ", r"\1 -passin env:COSIGN_PASSWORD "),
    )
    with Server().running() as server:
        server.client().create_bucket(Bucket="bundles")
        told.replace("S3, and its credentials", "moto's server on loopback")
        env = {**server.environment(), "COSIGN_PASSWORD": KEY_PASSWORD}
        _typed(machine, told, "ship.md", folder, values, env)


def fleet(machine: Machine, told: Told) -> None:
    folder = _reader(machine, told, "fleet")
    (folder / "nodes").write_text("gpu-01\ngpu-02\n")
    (folder / "bin").mkdir()
    (folder / "bin" / "ssh").write_text('#!/bin/sh\nshift\nexec "$@"\n')
    (folder / "bin" / "ssh").chmod(0o755)
    told.replace("ssh", "a script that runs the rest here")
    told.replace("nodes", "gpu-01 and gpu-02, both this machine")
    shutil.copy(ROOT / "tests/sgl_tune/start_report/public" / _COLD, folder / "server.log")
    told.replace("server.log", f"tests/sgl_tune/start_report/public/{_COLD}")
    values: Replacements = (
        (r"(?<=--cache-dir )/cache\b", str(folder / "cache")),
        (r"--model-path M\b", "--model-path Qwen/Qwen3-30B-A3B"),
        (r"/var/lib/node_exporter/textfile/", f"{folder}/textfile/"),
        (r'ssh "', f'{folder}/bin/ssh "'),
    )
    (folder / "textfile").mkdir()
    _typed(machine, told, "fleet.md", folder, values, {})
