"""The files under examples/ fit the schemas of their programs, as far as schemas are published."""

import json
import re
import shutil
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
import yaml

from runtime.toml import tomllib
from sgl_tune.deployment.options import ServerFlags
from tests.examples.recipes import EXAMPLES, containers, pod_of, servers
from tests.sgl_tune.planning import deployments
from tests.sgl_tune.running import ROOT, run_here
from tests.sgl_tune.stores.make import flashinfer_module, sglang_leaf, triton_kernel

FILES = sorted(EXAMPLES.iterdir())
PODS = [path for path in EXAMPLES.glob("*.yaml") if "compose" not in path.name]
SECONDS = 180


def _ends_well(*command: object) -> None:
    done = subprocess.run([*map(str, command)], capture_output=True, text=True, timeout=SECONDS)
    assert done.returncode == 0, done.stdout + done.stderr


@pytest.mark.parametrize("path", PODS, ids=lambda path: path.name)
def test_kubernetes_schema_accepts_it(path: Path) -> None:
    kubernetes_validate = pytest.importorskip("kubernetes_validate")
    content = yaml.safe_load(path.read_text())
    if content["kind"] == "LeaderWorkerSet":
        _check_leader_worker_set(content)
        spec = content["spec"]["leaderWorkerTemplate"]["workerTemplate"]["spec"]
        content = {"apiVersion": "v1", "kind": "Pod", "metadata": {"name": "worker"}, "spec": spec}
    kubernetes_validate.validate(content, "1.35", strict=True)
    with pytest.raises(kubernetes_validate.ValidationError):
        kubernetes_validate.validate({**content, "spec": {**content["spec"], "odd": 1}}, "1.35", strict=True)


def _check_leader_worker_set(content: dict[str, Any]) -> None:
    """Check the members that the definition of leaderworkerset.x-k8s.io/v1 names."""
    spec = content["spec"]
    assert content["apiVersion"] == "leaderworkerset.x-k8s.io/v1"
    assert spec.keys() == {"replicas", "leaderWorkerTemplate"}
    template = spec["leaderWorkerTemplate"]
    assert template.keys() == {"size", "restartPolicy", "workerTemplate"}
    assert template["restartPolicy"] in ("Default", "RecreateGroupOnPodRestart", "None")
    assert template["size"] == 2


@pytest.mark.parametrize("path", PODS, ids=lambda path: path.name)
def test_what_is_mounted_is_a_volume_that_is_there(path: Path) -> None:
    pod = pod_of(path)
    volumes = {volume["name"] for volume in pod["volumes"]}
    mounted = {mount["name"] for one in containers(pod) for mount in one["volumeMounts"]}
    assert mounted == volumes
    for container in containers(pod):
        writable = [m["mountPath"] for m in container["volumeMounts"] if not m.get("readOnly")]
        (cache_dir,) = [e["value"] for e in container["env"] if e["name"] == "SGLANG_CACHE_DIR"]
        assert any(cache_dir == path or cache_dir.startswith(f"{path}/") for path in writable)


@pytest.mark.parametrize(
    ("schema", "name"),
    [("github-workflows", "github-actions.yml"), ("compose-spec", "read-only-image.compose.yaml")],
)
def test_schemas_of_github_and_compose_accept_it(schema: str, name: str) -> None:
    pytest.importorskip("check_jsonschema")
    _ends_well(
        sys.executable, "-m", "check_jsonschema", "--builtin-schema", f"vendor.{schema}", EXAMPLES / name
    )


def test_hadolint_finds_nothing_in_the_dockerfile() -> None:
    hadolint = shutil.which("hadolint", path=f"{Path(sys.executable).parent}:/usr/bin:/usr/local/bin")
    if hadolint is None:
        pytest.skip("no hadolint for this processor")
    _ends_well(hadolint, EXAMPLES / "Dockerfile")


@pytest.mark.parametrize(("name", "command"), sorted(servers()))
def test_a_server_has_the_key_that_is_warmed(name: str, command: list[str]) -> None:
    flags = ServerFlags.of(gpu="h200", sglang_version="0.5.23")
    started = deployments(flags, command)[0]
    warmed = {one.name: one for one in deployments(flags, folder=EXAMPLES)}
    wanted = warmed["wide" if "leader" in name else "chat"]
    assert started.server.tuning.key == wanted.server.tuning.key and started.server.tuning.tunes


def test_servers_are_found_in_every_manifest_with_one() -> None:
    assert {name for name, _ in servers()} == {
        "Dockerfile", "image-volume.yaml", "init-container.yaml", "leader-worker-set.yaml",
        "read-only-image.compose.yaml",
    }  # fmt: skip


def test_the_image_volume_sets_what_relocate_prints(tmp_path: Path) -> None:
    flashinfer_module(tmp_path / ".cache" / "flashinfer", "norm")
    triton_kernel(tmp_path / "triton", "topk")
    sglang_leaf(tmp_path / "jit", "norm")
    place = ("--at", "/sgl-tune", "--scratch", "/caches/scratch")
    ran = run_here("relocate", tmp_path, *place, "--sglang-version", "0.5.23", "--format", "json")
    printed = json.loads(ran.out)["environment"]
    (server,) = pod_of(EXAMPLES / "image-volume.yaml")["containers"]
    given = {one["name"]: one["value"] for one in server["env"]}
    assert given.pop("SGLANG_CACHE_DIR") == "/caches" and printed.pop("SGLANG_CACHE_DIR") == "/sgl-tune"
    assert given == printed


@pytest.mark.parametrize("path", FILES, ids=lambda path: path.name)
def test_it_names_no_real_host_and_the_readme_links_it(path: Path) -> None:
    text = path.read_text()
    assert set(re.findall(r"\b(?:[\w-]+\.)+(?:com|io|org|net|ai|dev|example)\b(?!/(?:v\d|gpu))", text)) <= {
        "registry.example"
    }
    assert path.name == "README.md" or f"({path.name})" in (EXAMPLES / "README.md").read_text()


def test_the_dockerfile_installs_this_version_with_known_extras() -> None:
    project = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]
    installed = re.search(
        r"/tmp/sgl_tune-(.*?)-py3-none-any\.whl\[(.*?)\]", (EXAMPLES / "Dockerfile").read_text()
    )
    assert installed and installed[1] == project["version"]
    assert set(installed[2].split(",")) <= project["optional-dependencies"].keys()
