"""The recipes for Kubernetes: what a pod's containers run, with the files that its volumes would hold."""

from __future__ import annotations

import base64
import re
import shutil
from pathlib import Path

import yaml

from tests.examples.recipes import EXAMPLES, Step, containers, pod_of, pod_steps, servers
from tests.examples.whole.images import judge_server
from tests.examples.whole.machine import KEY_PASSWORD, Machine
from tests.examples.whole.told import Replacements, Told
from tests.sgl_tune.ship.registries import PASSWORD, USER

_ENV = {"COSIGN_PASSWORD": KEY_PASSWORD}


def secrets(machine: Machine, told: Told) -> None:
    """kubectl makes what the pods mount; no cluster is asked."""
    path = EXAMPLES / "warm-and-push.yaml"
    commands = re.findall(r"^#\s+(kubectl .*)$", path.read_text(), re.MULTILINE)
    if shutil.which("kubectl") is None:
        for command in commands:
            told.leave_out(command, "no kubectl: the files are copied")
        _copied(machine)
        return
    values = (
        (r"password=\.\.\.", f"password={KEY_PASSWORD}"),
        (r"(registry\.example) \.\.\.", rf"\1 --docker-username={USER} --docker-password={PASSWORD}"),
        (r"$", " --dry-run=client -o yaml"),
    )
    for command in commands:
        made = yaml.safe_load(machine.run(told, command, machine.config, also=values))
        name = {"sgl-tune": "config"}.get(made["metadata"]["name"], made["metadata"]["name"])
        for key, value in made["data"].items():
            content = value.encode() if made["kind"] == "ConfigMap" else base64.b64decode(value)
            (machine.made(f"objects/{name}") / key).write_bytes(content)


def _copied(machine: Machine) -> None:
    for name in ("sgl-tune.toml", "cosign.pub"):
        shutil.copy(machine.config / name, machine.made("objects/config"))
    shutil.copy(machine.config / "cosign.key", machine.made("objects/cosign"))
    (machine.made("objects/registry") / ".dockerconfigjson").write_text(machine.login)


def _volumes(machine: Machine, path: Path, step: Step, place: Path) -> Replacements:
    """Each mount's path, and the folder that has what its volume would have, item by item."""
    known = {volume["name"]: volume for volume in pod_of(path)["volumes"]}
    folders: dict[str, str] = {}
    for at, name in step.mounts.items():
        volume, folder = known[name], place / name
        folders[at] = str(folder)
        folder.mkdir(parents=True, exist_ok=True)
        kind = volume.get("configMap", {}).get("name") or volume.get("secret", {}).get("secretName")
        if kind:
            source = machine.work / "objects" / {"sgl-tune": "config"}.get(kind, kind)
            every = [{"key": one.name, "path": one.name} for one in source.iterdir()]
            items = volume.get("secret", {}).get("items") or every
            for item in items:
                shutil.copy(source / item["key"], folder / item["path"])
                (folder / item["path"]).chmod(volume.get("secret", {}).get("defaultMode", 0o644))
    paths = "|".join(sorted(folders, key=len, reverse=True))
    return [(rf"(?<![\w./:-])(?<!--at=)(?:{paths})(?![\w.-])", lambda found: folders[found[0]])]


def _pod(machine: Machine, told: Told, name: str, more: Replacements = (), **env: str) -> None:
    path = EXAMPLES / name
    place = machine.made(f"pods/{name}{''.join(env.values())}")
    machine.tell_config(told)
    told.replace("the volumes", f"folders below {place}")
    for step in pod_steps(path):
        volumes = _volumes(machine, path, step, place)
        given = {**step.env, **(_ENV if "COSIGN_PASSWORD" in step.env else {}), **env}
        machine.run(told, step.script, place / "config", env=given, also=(*more, *volumes))
    for container in containers(pod_of(path)):
        _judged(machine, told, name, container, place)


def _judged(machine: Machine, told: Told, name: str, container: dict[str, object], place: Path) -> None:
    if container["name"] != "server":
        return
    judge_server(machine, told, dict(servers())[name], {"SGLANG_CACHE_DIR": str(place / "caches")})


def job(machine: Machine, told: Told) -> None:
    _pod(machine, told, "warm-and-push.yaml")


def init_container(machine: Machine, told: Told) -> None:
    _pod(machine, told, "init-container.yaml")


def leader_worker_set(machine: Machine, told: Told) -> None:
    for node in ("0", "1"):
        told.replace(f"LWS_WORKER_INDEX, node {node}", node)
        _pod(machine, told, "leader-worker-set.yaml", LWS_GROUP_SIZE="2", LWS_WORKER_INDEX=node)


def image_volume(machine: Machine, told: Told) -> None:
    """The kubelet's part is skopeo's and umoci's."""
    place = machine.made("pods/image-volume.yaml")
    if shutil.which("skopeo") is None or shutil.which("umoci") is None:
        told.leave_out("all of it", "no skopeo, or no umoci")
        return
    told.replace("the kubelet's pull and mount", "skopeo copy, umoci unpack")
    copy = f"skopeo --insecure-policy copy -q --src-tls-verify=false --authfile {machine.docker}/config.json"
    fetch = f"{copy} docker://registry.example/caches/chat:0.5.23 oci:{place}/image:chat\n"
    machine.run(told, f"{fetch}umoci unpack --rootless --image {place}/image:chat {place}/unpacked", place)
    shutil.copytree(place / "unpacked" / "rootfs", place / "bundle", dirs_exist_ok=True)
    at = ((r"--store all /sgl-tune(?! --at)", "--store all /sgl-tune --at=/sgl-tune"),)
    _pod(machine, told, "image-volume.yaml", at)
