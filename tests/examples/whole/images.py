"""The recipes around images: the Dockerfile's targets, the workflow in one of them, the read-only one."""

from __future__ import annotations

import json
import re
import shutil
import subprocess
from pathlib import Path

import yaml

from tests.examples.recipes import EXAMPLES, docker_steps, servers, workflow_steps
from tests.examples.whole.machine import KEY_PASSWORD, SERVER_PACKAGES, Machine
from tests.examples.whole.told import Told
from tests.sgl_tune.running import ROOT
from tests.sgl_tune.stores.make import triton_kernel

_DOCKERFILE = EXAMPLES / "Dockerfile"


def beside(machine: Machine, told: Told) -> None:
    """`pip wheel --no-deps .` in a checkout, and what a build copies."""
    (command,) = re.findall(r"`(pip wheel [^`]*)`", _DOCKERFILE.read_text())
    told.replace("a checkout", "a copy of this one, WORK/checkout")
    checkout = machine.made("checkout")
    for package in ("sgl_tune", "runtime"):
        shutil.copytree(ROOT / package, checkout / package, ignore=shutil.ignore_patterns("__pycache__"))
    for name in ("pyproject.toml", "README.md", "LICENSE"):
        shutil.copy(ROOT / name, checkout)
    machine.environment_of(machine.laptop)
    machine.run(told, command, checkout, image=machine.laptop)


def tool(machine: Machine, told: Told) -> None:
    told.replace("SERVER_IMAGE", f"WORK/image, a virtual environment with {', '.join(SERVER_PACKAGES)}")
    machine.environment_of(machine.image, *SERVER_PACKAGES)
    shutil.copy(machine.wheel, machine.made("tmp"))
    for step in docker_steps(_DOCKERFILE):
        if step.script.startswith("pip install"):
            machine.run(told, step.script, machine.config, also=[(r"/tmp/", f"{machine.work}/tmp/")])
    header = _DOCKERFILE.read_text().replace("\n# ", " ")
    (command,) = re.findall(r"`(sgl-tune env [^`]*)`", header)
    told.replace("the GPU that serves", "the CPU that is here")
    machine.run(told, f"{command} > env.json", machine.config)


def workflow(machine: Machine, told: Told) -> None:
    """The runner's own steps are copies of files."""
    workspace = machine.work / "workspace"
    shutil.copytree(machine.config, workspace, ignore=shutil.ignore_patterns("cosign.key", "env.json"))
    machine.tell_config(told)
    told.replace("actions/checkout, cache, upload-artifact", "a copy of sgl-tune.toml")
    told.replace("what else a start compiles", "one kernel in Triton's form")
    values = {
        "github.workspace": str(workspace), "secrets.DOCKER_CONFIG_JSON": machine.login,
        "secrets.COSIGN_KEY": (machine.config / "cosign.key").read_text(),
        "secrets.COSIGN_PASSWORD": KEY_PASSWORD,
    }  # fmt: skip
    for step in workflow_steps(EXAMPLES / "github-actions.yml"):
        env = {
            name: re.sub(r"\${{ (.*?) }}", lambda found: values[found[1]], value)
            for name, value in step.env.items()
        }
        if "pack" in step.script:
            triton_kernel(workspace / "caches" / "triton", "kernel")
        machine.run(told, step.script, workspace, env=env)
    if not json.loads((workspace / "warm.json").read_text()):
        told.fail("warm.json is empty")


def pulled(machine: Machine, told: Told) -> None:
    _server(machine, told, machine.made("pulled") / "caches", "")


def warmed(machine: Machine, told: Told) -> None:
    _server(machine, told, machine.made("warmed") / "caches", "1")


def _server(machine: Machine, told: Told, caches: Path, warm: str) -> None:
    """As the daemon does it: the builder's caches become the server's user's."""
    machine.tell_config(told)
    as_server = server_user(machine, told)
    places = [(r"(?<![\w./-])/caches\b", str(caches)), (r"/run/docker\b", str(machine.docker))]
    for step in docker_steps(_DOCKERFILE):
        if step.script.startswith("pip install"):
            continue  # the target `tool` has it
        env = {**step.env, **({"WARM": warm} if "WARM" in step.env else {})}
        judged = "verify" in step.script
        if judged and as_server:
            subprocess.run(["chown", "-R", "1000:1000", caches], check=True)
        machine.run(told, step.script, machine.config, env=env, also=places, user=as_server if judged else ())
    server = dict(servers())["Dockerfile"]
    judge_server(machine, told, server, {"SGLANG_CACHE_DIR": str(caches)}, as_server)


def server_user(machine: Machine, told: Told) -> tuple[str, ...]:
    """What a command begins with that is run by the user 1000, if this machine lets us."""
    words = ("setpriv", "--reuid=1000", "--regid=1000", "--clear-groups")
    machine.work.chmod(0o755)
    try:
        probe = [*words, "sh", "-c", f"{machine.image}/bin/sgl-tune --version"]
        done = subprocess.run(probe, capture_output=True)
    except FileNotFoundError:
        done = None
    if done is not None and done.returncode == 0:
        return words
    told.replace("the user 1000:1000", "the user who runs this")
    return ()


def judge_server(
    machine: Machine, told: Told, command: list[str], env: dict[str, str], user: tuple[str, ...] = ()
) -> None:
    """A server needs its GPU: its command is read, and the start that it would make is judged."""
    words = " ".join(map(_quoted, command))
    told.replace("python -m sglang.launch_server ...", "sgl-tune verify --arch cpu ... -- that command")
    machine.run(told, f"{machine.judging} -- {words}", machine.config, env=env, user=user)


def _quoted(word: str) -> str:
    return word if re.fullmatch(r"[\w./:=-]+", word) else f"'{word}'"


def read_only(machine: Machine, told: Told) -> None:
    machine.tell_config(told)
    srv, as_server = machine.made("srv"), server_user(machine, told)
    owner = [] if as_server else [(r"1000:1000\b|(?<=--owner )1000|(?<=--as-user )1000", "0")]
    places = [(r"/srv/sgl-tune", str(srv)), *owner]
    env = {"DOCKER_CONFIG": str(machine.docker)}
    machine.run(told, (EXAMPLES / "read-only-image.sh").read_text(), machine.config, env=env, also=places)
    compose = yaml.safe_load((EXAMPLES / "read-only-image.compose.yaml").read_text())
    options = compose["volumes"]["caches"]["driver_opts"]["o"].replace("/srv/sgl-tune", str(srv))
    told.replace("a volume of compose", "unshare -Urm, mount -t overlay with its options")
    merged = machine.made("merged")
    server = dict(servers())["read-only-image.compose.yaml"]
    judged = f"{machine.judging} --cache-dir {merged} -- {' '.join(server)}"
    judged += f" && touch {merged}/flashinfer/autotune/saved"
    inside = f"mount -t overlay overlay -o {options} {merged} && {judged}"
    machine.run(told, f"unshare -Urm sh -ec '{inside}'", machine.config)
    if list((srv / "caches").rglob("saved")) or len(list((srv / "saved").rglob("saved"))) != 1:
        told.fail("what a server saves did not go over the caches")
