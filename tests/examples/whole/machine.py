"""What the recipes are run on: an image as a virtual environment, a registry, S3, and a shell."""

from __future__ import annotations

import base64
import json
import os
import re
import shlex
import shutil
import subprocess
import sys
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path

from tests.examples.recipes import EXAMPLES
from tests.examples.whole.statements import statements
from tests.examples.whole.told import Replacements, Told
from tests.sgl_tune.running import ROOT
from tests.sgl_tune.ship.registries import PASSWORD, USER, Registry, started

SECONDS = 1200
COSIGN = ROOT / "tests/sgl_tune/ship/cosign"
KEY_PASSWORD = "hello"
# As small as tp 16 and ep 16 leave it; the keys are those of the models that the recipes name.
MODEL = {
    "model_type": "qwen3_moe",
    "vocab_size": 256,
    "hidden_size": 64,
    "intermediate_size": 64,
    "moe_intermediate_size": 64,
    "num_hidden_layers": 1,
    "num_attention_heads": 16,
    "num_key_value_heads": 4,
    "head_dim": 16,
    "num_experts": 16,
    "num_experts_per_tok": 2,
    "max_position_embeddings": 128,
}
SERVER_PACKAGES = ("torch", "transformers", "safetensors", "flashinfer-python")
_ELSEWHERE = re.compile(r"(?<![\w./:@=-])(?<!--at )/(?:caches?|sgl-tune|srv|keys|docker|run|etc|var|work)\b")


class Machine:
    def __init__(self, work: Path, registry: Registry) -> None:
        self.work, self.host = work, f"localhost:{registry.port}"
        self.image, self.laptop = work / "image", work / "laptop"
        self.model = self.made("model") / "tiny.json"
        self.model.write_text(json.dumps(MODEL))
        login = base64.b64encode(f"{USER}:{PASSWORD}".encode()).decode()
        self.login = json.dumps({"auths": {self.host: {"auth": login}}})
        self.judging = f"sgl-tune verify --sglang-version 0.5.23 --arch cpu --model-config {self.model}"
        self.config, self.docker = self._config(), self.made("docker")
        (self.docker / "config.json").write_text(self.login)

    @classmethod
    @contextmanager
    def started(cls, work: Path, anew: bool) -> Iterator[Machine]:
        work.mkdir(parents=True, exist_ok=True)
        for old in work.iterdir():
            if anew and old.name != "image" and old.is_dir():
                shutil.rmtree(old)
        with started(work / "registry", password=True) as registry:
            yield cls(work, registry)

    @property
    def wheel(self) -> Path:
        """What `pip wheel` made, the first recipe of all."""
        (wheel,) = (self.work / "checkout").glob("*.whl")
        return wheel

    def made(self, name: str) -> Path:
        (self.work / name).mkdir(parents=True, exist_ok=True)
        return self.work / name

    def _config(self) -> Path:
        """sgl-tune.toml, whose deployments are small and for the CPU; beside it a key pair of cosign's."""
        folder = self.made("config")
        text = (EXAMPLES / "sgl-tune.toml").read_text()
        more = f'[defaults]\narch = "cpu"\nmodel-config = "{self.model}"\n'
        (folder / "sgl-tune.toml").write_text(text.replace("[defaults]\n", more))
        shutil.copy(COSIGN / "standard.pub", folder / "cosign.pub")
        shutil.copy(COSIGN / "standard.key", folder / "cosign.key")
        (folder / "cosign.key").chmod(0o600)
        return folder

    def tell_config(self, told: Told) -> None:
        told.replace("sgl-tune.toml", 'the same with arch = "cpu", model-config = "tiny.json"')

    def run(
        self, told: Told, script: str, cwd: Path, *, env: Mapping[str, str] | None = None,
        also: Replacements = (), image: Path | None = None, expected: int = 0, user: tuple[str, ...] = (),
    ) -> str:  # fmt: skip
        """All of `script`, as one shell runs it: what it printed."""
        count = statements(script)
        told.commands += len(count)
        values = (*also, (r"registry\.(?:example|local)", self.host), *_PLAIN)
        here = [told.replaced(one, values) for one in count]
        given = {name: told.replaced(value, values) for name, value in (env or {}).items()}
        for one in (*here, *given.values()):
            if found := _ELSEWHERE.search(one.replace(str(self.work), "WORK")):
                raise AssertionError(f"{found[0]} of this machine would be touched: {one}")
        marks = self.work / "marks"
        marks.write_text("")
        mark = f"echo >> {shlex.quote(str(marks))}\n"
        marked = "".join(f"{mark}{one}\n" for one in here)
        marks.chmod(0o666)
        done = subprocess.run(
            [*user, "sh", "-ec", marked],
            cwd=cwd, env=self._environment(image or self.image, given), stdin=subprocess.DEVNULL,
            capture_output=True, text=True, timeout=SECONDS,
        )  # fmt: skip
        began = len(marks.read_text())
        told.ran += began
        if done.returncode != expected:
            last = here[began - 1] if began else here[0]
            told.fail(f"{last}\nexit {done.returncode}\n{done.stdout[-3000:]}\n{done.stderr[-3000:]}")
        return done.stdout

    def _environment(self, image: Path, given: Mapping[str, str]) -> dict[str, str]:
        left = ("SGL", "FORCE_", "NO_", "COSIGN", "DOCKER", "VIRTUAL_ENV", "PYTHONPATH")
        kept = {name: value for name, value in os.environ.items() if not name.startswith(left)}
        home = self.made("home")
        home.chmod(0o777)
        path = f"{image}/bin:{kept['PATH']}"
        own = {"HOME": str(home), "PATH": path, "OMP_NUM_THREADS": "1", "TERM": "dumb"}
        return {**kept, **own, **given}

    def environment_of(self, place: Path, *packages: str) -> None:
        """A virtual environment, by pip as it is configured on this machine."""
        if (place / ".whole").exists():
            return
        shutil.rmtree(place, ignore_errors=True)
        subprocess.run([sys.executable, "-m", "venv", place], check=True)
        if packages:
            constraints = ("-c", ROOT / "constraints.txt")
            subprocess.run([place / "bin/pip", "install", "-qq", *constraints, *packages], check=True)
        (place / ".whole").touch()


_PLAIN = ((r"sgl-tune (push|pull)\b(?! --plain-http)(?!.* s3://)", r"sgl-tune \1 --plain-http"),)
