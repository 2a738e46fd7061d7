"""The commands in the files under examples/, as a kubelet, a runner or a builder would run them."""

import re
import shlex
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any, NamedTuple

import yaml

from tests.sgl_tune.running import ROOT

EXAMPLES = ROOT / "examples"
_SECRET = re.compile(r"--mount=type=secret,id=(\w+),target=(\S+)")


class Step(NamedTuple):
    """One command. `mounts` maps paths of the container to folders."""

    name: str
    script: str
    env: dict[str, str]
    mounts: dict[str, str]


def pod_of(path: Path) -> dict[str, Any]:
    spec = yaml.safe_load(path.read_text())["spec"]
    template = spec.get("template") or spec["leaderWorkerTemplate"]["workerTemplate"]
    return dict(template["spec"])


def containers(pod: Mapping[str, Any]) -> Iterator[dict[str, Any]]:
    yield from (*pod.get("initContainers", ()), *pod["containers"])


def pod_steps(path: Path) -> Iterator[Step]:
    """Return a pod's shell scripts, in the order in which they run."""
    pod = pod_of(path)
    for container in containers(pod):
        if container["command"] == ["sh", "-ec"]:
            env = {one["name"]: one.get("value", "password") for one in container.get("env", ())}
            mounts = {mount["mountPath"]: mount["name"] for mount in container["volumeMounts"]}
            yield Step(f"{path.stem}: {container['name']}", container["args"][0], env, mounts)


def servers() -> Iterator[tuple[str, list[str]]]:
    """Return the command of every server that is started, with a pod's variables as on its first node."""
    first = {"$(LWS_GROUP_SIZE)": "2", "$(LWS_WORKER_INDEX)": "0", "$(LWS_LEADER_ADDRESS)": "wide-0"}
    for path in EXAMPLES.glob("*.yaml"):
        content = yaml.safe_load(path.read_text())
        if "services" in content:
            yield path.name, shlex.split(content["services"]["server"]["command"])
            continue
        for container in pod_of(path)["containers"]:
            words = [*container["command"], *container.get("args", ())]
            for name, value in first.items():
                words = [word.replace(name, value) for word in words]
            if "sglang.launch_server" in words:
                yield path.name, words
    command = re.search(r"^CMD (\[.*\])$", (EXAMPLES / "Dockerfile").read_text(), re.M)
    assert command
    yield "Dockerfile", yaml.safe_load(command[1])


def workflow_steps(path: Path) -> Iterator[Step]:
    job = yaml.safe_load(path.read_text())["jobs"]["warm"]
    for step in job["steps"]:
        if "run" in step:
            env = {**job["env"], **step.get("env", {})}
            yield Step(f"{path.stem}: {step.get('name')}", step["run"], env, {})


def docker_steps(path: Path) -> Iterator[Step]:
    """Return a Dockerfile's RUN commands, with the values that ARG and ENV have at each."""
    text = re.sub(r"\\\n\s*", "", path.read_text())
    env: dict[str, str] = {}
    for line in text.splitlines():
        word, _, rest = line.partition(" ")
        if word in ("ARG", "ENV") and "=" in rest:
            name, _, value = rest.partition("=")
            env[name] = value
        elif word == "RUN":
            secrets = {Path(target).parent.as_posix(): name for name, target in _SECRET.findall(rest)}
            yield Step(f"Dockerfile: {rest[:40]}", _SECRET.sub("", rest).strip(), dict(env), secrets)
