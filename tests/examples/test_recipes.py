"""Every recipe works: its commands run in order, outside a container, with a real registry."""

import base64
import json
import os
import re
import shutil
import subprocess
import tarfile
from collections.abc import Iterator, Mapping
from pathlib import Path

import pytest
import yaml

from tests.examples.recipes import EXAMPLES, Step, docker_steps, pod_steps, workflow_steps
from tests.programs import program
from tests.sgl_tune.running import PROGRAM, environment
from tests.sgl_tune.stores.make import TRITON, triton_kernel
from tests.warm.test_warm import MODEL

pytest.importorskip("oras")
pytest.importorskip("cryptography")

from tests.sgl_tune.ship.registries import PASSWORD, USER, Registry, needs_registry, started
from tests.sgl_tune.ship.signing import make_keys

pytestmark = needs_registry
SECONDS = 120
CPU = """
[defaults]
arch = "cpu"
model-path = "{model}"
moe-runner-backend = "flashinfer_cutlass"
chunked-prefill-size = 16
max-running-requests = 16
tp = 2
[deployments.chat]
[deployments.wide]
"""  # so that one warm is enough for both
CONTAINERS = re.compile(r"(\S+)\s(/(?:caches|sgl-tune|srv|keys|docker|run/docker|work/c\w+)\b)")
REMOTE = re.compile(r"sgl-tune (push|pull)\b")


class Bench:
    """A folder with the files that the recipes need, and the registry that they name."""

    def __init__(self, folder: Path, registry: Registry) -> None:
        self.folder, self._registry = folder, registry
        self.config, self.keys, self.docker = (self._made(name) for name in ("config", "keys", "docker"))
        (folder / "model").mkdir()
        (folder / "model" / "config.json").write_text(json.dumps(MODEL))
        (self.config / "sgl-tune.toml").write_text(CPU.format(model=folder / "model"))
        private, public = make_keys(self.keys, "cosign")
        shutil.move(public, self.config / "cosign.pub")
        self.key = private.read_text()
        login = base64.b64encode(f"{USER}:{PASSWORD}".encode()).decode()
        self.login = json.dumps({"auths": {f"localhost:{registry.port}": {"auth": login}}})
        for place in (self.docker, self._made(".docker")):
            (place / "config.json").write_text(self.login)
        program(folder / "bin/sgl-tune", f'exec {" ".join(PROGRAM)} "$@"')

    def _made(self, name: str) -> Path:
        (self.folder / name).mkdir(exist_ok=True)
        return self.folder / name

    def run(self, step: Step, cwd: Path, places: Mapping[str, Path], **env: str) -> str:
        """Run a step. `places` maps paths of a container to folders here."""
        script = self._here(step.script, places)
        given = {name: self._here(value, places) for name, value in {**step.env, **env}.items()}
        own = {
            "OMP_NUM_THREADS": "1",
            "HOME": str(self.folder),
            "PATH": f"{self.folder}/bin:{os.environ['PATH']}",
        }
        done = subprocess.run(
            ["sh", "-ec", script],
            cwd=cwd, env=environment(**own, **given), capture_output=True, text=True, timeout=SECONDS,
        )  # fmt: skip
        assert done.returncode == 0, f"{step.name}\n{script}\n{done.stdout}\n{done.stderr}"
        return done.stdout

    def _here(self, text: str, places: Mapping[str, Path]) -> str:
        """Return the words with the folders, the registry and the user of this machine."""
        if places:
            names = "|".join(map(re.escape, sorted(places, key=len, reverse=True)))
            path = re.compile(rf"(?<![\w./:-])(?<!--at=)({names})(?![\w.-])")
            text = path.sub(lambda found: str(places[found[1]]), text)
        left = [before for before, _ in CONTAINERS.findall(text) if before != "--at"]
        assert not left, f"would touch this machine: {text}"
        text = REMOTE.sub(r"sgl-tune \1 --plain-http", text)
        text = text.replace("registry.example", f"localhost:{self._registry.port}")
        text = text.replace("1000:1000", f"{os.getuid()}:{os.getgid()}")
        return text.replace(" 1000", f" {os.getuid()}")


@pytest.fixture(scope="module")
def bench(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Bench]:
    folder = tmp_path_factory.mktemp("bench")
    with started(folder / "registry", password=True) as registry:
        yield Bench(folder, registry)


@pytest.fixture(scope="module")
def pushed(bench: Bench) -> Path:
    """Run the workflow first: it warms caches, compiles one kernel, judges, signs and pushes."""
    workspace = bench.folder / "workspace"
    shutil.copytree(bench.config, workspace)
    values = {
        "github.workspace": str(workspace), "secrets.DOCKER_CONFIG_JSON": bench.login,
        "secrets.COSIGN_KEY": bench.key, "secrets.COSIGN_PASSWORD": "",
    }  # fmt: skip
    for step in workflow_steps(EXAMPLES / "github-actions.yml"):
        env = {
            name: re.sub(r"\${{ (.*?) }}", lambda found: values[found[1]], value)
            for name, value in step.env.items()
        }
        assert "${{" not in step.script, "an expression in a script is an injection"
        if "pack" in step.script:
            here = json.loads((workspace / "env.json").read_text()).get("libraries", {})
            version = here.get("triton") or TRITON
            triton_kernel(workspace / "caches" / "triton", "kernel", triton_version=version)
        bench.run(step._replace(env=env), workspace, {})
    assert not (workspace / "cosign.key").exists() and json.loads((workspace / "warm.json").read_text())
    assert not (workspace / "docker" / "config.json").exists()
    shutil.copy(workspace / "env.json", bench.config)
    return workspace


def _volumes(bench: Bench, step: Step, pod: Path) -> dict[str, Path]:
    known = {"config": bench.config, "keys": bench.keys, "docker": bench.docker}
    places = {path: known.get(volume, pod / volume) for path, volume in step.mounts.items()}
    for place in places.values():
        place.mkdir(parents=True, exist_ok=True)
    return places


def _kernels(root: Path) -> list[str]:
    return [path.name for path in root.glob("triton/*/__grp__*.json")]


def test_the_job_pushes_what_the_workflow_pushed(bench: Bench, pushed: Path, tmp_path: Path) -> None:
    (step,) = pod_steps(EXAMPLES / "warm-and-push.yaml")
    places = _volumes(bench, step, tmp_path)
    shutil.copytree(pushed / "caches", places["/work"] / "caches")
    assert "sgl-tune warm\n" in step.script, "that was run by the workflow"
    shorter = step._replace(script=step.script.replace("sgl-tune warm\n", "sgl-tune warm --dry-run\n"))
    bench.run(shorter, bench.config, places, COSIGN_PASSWORD="")
    assert (places["/work"] / "chat.tar.gz").read_bytes() == (pushed / "chat.tar.gz").read_bytes()


def test_the_init_container_fills_an_empty_volume(bench: Bench, pushed: Path, tmp_path: Path) -> None:
    (step,) = pod_steps(EXAMPLES / "init-container.yaml")
    places = _volumes(bench, step, tmp_path)
    said = bench.run(step, bench.config, places)
    assert said.splitlines()[-1].startswith("good: the next start loads 2 of 2 files")
    (kernel,) = (places["/caches"] / "triton").rglob("__grp__*.json")
    assert str(places["/caches"]) in kernel.read_text(), "made right for its place"


def test_the_image_volume_is_read_and_tactics_are_copied(bench: Bench, pushed: Path, tmp_path: Path) -> None:
    (step,) = pod_steps(EXAMPLES / "image-volume.yaml")
    places = _volumes(bench, step, tmp_path)
    _mount_image(pushed / "chat.tar.gz", places["/sgl-tune"])
    mounted = step.script.replace("--store all /sgl-tune", "--store all /sgl-tune --at=/sgl-tune")
    said = bench.run(step._replace(script=mounted), bench.config, places)
    assert "good: the next start loads 2 of 2 files" in said and len(_kernels(places["/sgl-tune"])) == 1
    assert said.splitlines()[-1].startswith("good: of 1 item in 1 store, 1 found")


def _mount_image(bundle: Path, place: Path) -> None:
    """Unpack an image's layer as a container runtime does."""
    with tarfile.open(bundle) as layer:
        layer.extractall(place, filter="data")


def test_a_node_of_leader_worker_sets_judges_what_it_has(bench: Bench, pushed: Path, tmp_path: Path) -> None:
    (step,) = pod_steps(EXAMPLES / "leader-worker-set.yaml")
    said = bench.run(step, bench.config, _volumes(bench, step, tmp_path))
    assert said.splitlines()[-1].startswith("good: the next start loads 2 of 2 files")


@pytest.mark.parametrize("warm", ["", "1"], ids=["pulled", "warmed"])
def test_images_are_built_from_what_was_pushed(warm: str, bench: Bench, pushed: Path, tmp_path: Path) -> None:
    caches = tmp_path / "caches"
    if warm:
        shutil.copytree(pushed / "caches", caches)
    for step in docker_steps(EXAMPLES / "Dockerfile"):
        places = {"/caches": caches, "/run/docker": bench.docker}
        if step.script.startswith(("pip install", "sgl-tune warm --everything")):
            continue  # the wheel's own test installs it; no server is here to compile for
        script = step.script.replace("sgl-tune warm", "sgl-tune warm --dry-run")
        given = {"WARM": warm} if "WARM" in step.env else {}
        said = bench.run(step._replace(script=script), bench.config, places, **given)
    assert said.splitlines()[-1].startswith("good: the next start loads 2 of 2 files")
    assert len(_kernels(caches)) == 1


@pytest.mark.skipif(os.getuid() != 0, reason="the script is for root")
def test_what_a_server_saves_goes_over_a_read_only_cache(bench: Bench, pushed: Path, tmp_path: Path) -> None:
    script = (EXAMPLES / "read-only-image.sh").read_text()
    srv = tmp_path / "srv"
    bench.run(Step("read-only-image", script, {}, {}), bench.config, {"/srv/sgl-tune": srv})
    if _overlaid(tmp_path / "probe", "lowerdir=a,upperdir=b,workdir=c", "true").returncode:
        pytest.skip("this machine lets nobody mount an overlay")
    compose = yaml.safe_load((EXAMPLES / "read-only-image.compose.yaml").read_text())
    options = compose["volumes"]["caches"]["driver_opts"]["o"].replace("/srv/sgl-tune", str(srv))
    save = "echo saved > merged/flashinfer/autotune/new && cat merged/flashinfer/autotune/*/*/*/rank_tp0*"
    done = _overlaid(tmp_path / "mounted", options, save)
    assert done.returncode == 0 and json.loads(done.stdout), done.stderr
    assert not list((srv / "caches").rglob("new")) and len(list((srv / "saved").rglob("new"))) == 1


def _overlaid(folder: Path, options: str, command: str) -> subprocess.CompletedProcess[str]:
    """Return `command` with `merged` mounted as a volume with these options."""
    for name in ("a", "b", "c", "merged"):
        (folder / name).mkdir(parents=True)
    script = f"mount -t overlay overlay -o {options} merged && {command}"
    mount = ["unshare", "-Urm", "sh", "-ec", script]
    return subprocess.run(mount, cwd=folder, capture_output=True, text=True, timeout=SECONDS)
