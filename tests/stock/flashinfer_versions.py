"""FlashInfer's own loader, saver and lookups, version by version, against ours.

Each version is installed beside this environment's other packages; then the demo is warmed with proof and
again, and damaged files are judged by that version's loader and saver and by ours.

python -m tests.stock.flashinfer_versions --work DIR --files 10000
python -m tests.stock.flashinfer_versions --work DIR --record   # what the tests hold, for a new version too
"""

import argparse
import json
import os
import shutil
import site
import subprocess
import sys
import sysconfig
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

ROOT = Path(__file__).resolve().parents[2]
VERSIONS = ("0.6.12", "0.6.15.post1", "0.6.18", "0.7.1", "0.7.2.post1", "0.7.4")
PINNED = ("0.6.11.post1", "0.6.12", "0.6.14", "0.6.15.post1", "0.6.17", "0.6.18", "0.7.1", "0.7.2")
RECORDED = (*PINNED, "0.7.4")  # which no release up to 0.5.23 pins
VERDICTS = ROOT / "tests" / "sgl_tune" / "cache" / "flashinfer_verdicts.json"
RECORDED_FILES, RECORDED_SEED = 300, 7
_SECONDS = 1800
_START = "import tests.stock.cuda_answers"
_CLI = "import sys; from sgl_tune.cli.app import main; sys.exit(main())"


@dataclass(frozen=True)
class Environment:
    """A virtual environment with one FlashInfer; all other packages are this interpreter's."""

    version: str
    folder: Path

    @property
    def python(self) -> Path:
        return self.folder / "bin" / "python"

    def make(self) -> None:
        if (self.folder / "made").exists():
            return
        _run([sys.executable, "-m", "venv", str(self.folder)])
        script = "import sysconfig; print(sysconfig.get_paths()['purelib'])"
        packages = Path(_run([str(self.python), "-c", script]).stdout.strip())
        wanted = f"flashinfer-python=={self.version}"
        # Before the others can be seen: pip would take their FlashInfer for the one that is asked for.
        _run([str(self.python), "-m", "pip", "install", "-q", "--no-deps", wanted])
        (packages / "zz_shared.pth").write_text("\n".join([str(ROOT), *_shared_packages(), _START, ""]))
        (self.folder / "made").touch()

    def run(self, *arguments: str) -> subprocess.CompletedProcess[str]:
        command, variables = [str(self.python), *arguments], {**os.environ, "PYTHONSAFEPATH": "1"}
        streams = {"capture_output": True, "text": True}
        return subprocess.run(command, cwd=ROOT, env=variables, timeout=_SECONDS, **streams)


@dataclass(frozen=True)
class Outcome:
    version: str
    ok: bool
    words: str


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--work", type=Path, required=True, help="where the environments are made, and stay")
    parser.add_argument("--files", type=int, default=10_000)
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--versions", nargs="+")
    parser.add_argument("--record", action="store_true", help=f"write {VERDICTS.name}, these versions anew")
    asked = parser.parse_args()
    environments = [
        Environment(version, asked.work.resolve() / version)
        for version in asked.versions or (RECORDED if asked.record else VERSIONS)
    ]
    for environment in environments:
        environment.make()
    if asked.record:
        _record(environments)
    else:
        raise SystemExit(0 if _compare(environments, asked.files, asked.seed) else 1)


def _compare(environments: Sequence[Environment], files: int, seed: int) -> bool:
    good = True
    for environment in environments:
        for outcome in _outcomes(environment, files, seed):
            good &= outcome.ok
            print(f"{outcome.version:14} {'ok  ' if outcome.ok else 'FAIL'} {outcome.words}", flush=True)
    return good


def _record(environments: Sequence[Environment]) -> None:
    sizes = ("--files", str(RECORDED_FILES), "--seed", str(RECORDED_SEED))
    verdicts = json.loads(VERDICTS.read_text())["verdicts"]
    for environment in environments:
        done = environment.run("-m", "tests.stock.loader_differential", "--record", *sizes)
        if done.returncode:
            raise SystemExit(f"{environment.version}: {done.stderr}")
        verdicts[environment.version] = json.loads(done.stdout)
    content = {"files": RECORDED_FILES, "seed": RECORDED_SEED, "verdicts": verdicts}
    VERDICTS.write_text(json.dumps(content, indent=1) + "\n")


def _judged(environment: Environment, files: int, seed: int) -> Outcome:
    sizes = ("--files", str(files), "--seed", str(seed))
    done = environment.run("-m", "tests.stock.loader_differential", *sizes)
    words = done.stdout.splitlines()[0] if done.returncode == 0 else done.stdout + done.stderr
    return Outcome(environment.version, done.returncode == 0, words)


def _outcomes(environment: Environment, files: int, seed: int) -> Iterator[Outcome]:
    """Damaged files; the demo, cold and again, each proven in a process of its own; what verify says."""
    yield _judged(environment, files, seed)
    done = environment.run("-m", "pytest", "-qsp", "no:cacheprovider", "tests/stock/test_verdicts.py")
    yield Outcome(environment.version, done.returncode == 0, f"verify: {done.stdout.splitlines()[0]}")
    caches = environment.folder / "caches"
    shutil.rmtree(caches, ignore_errors=True)
    first = _warm(environment, caches)
    yield Outcome(environment.version, _is_proven(first), _warm_words("warm", first))
    second = _warm(environment, caches)
    reuses = _is_proven(second) and second["tuned"] == 0 and second["reused"] > 0
    yield Outcome(environment.version, reuses, _warm_words("again", second))
    yield _verified(environment, caches)


def _warm(environment: Environment, caches: Path) -> dict[str, Any]:
    arguments = ("warm", "--tp", "2", "--dp", "2", "--device", "cpu", "--cache-dir", str(caches))
    done = environment.run("-c", _CLI, *arguments, "--format", "json")
    try:
        return json.loads(done.stdout)
    except ValueError:
        return {"said": done.stdout + done.stderr}


def _is_proven(warmed: dict[str, Any]) -> bool:
    return "proof" in warmed and warmed["proof"]["misses"] in (0, []) and warmed["proof"]["asked"] > 0


def _warm_words(what: str, warmed: dict[str, Any]) -> str:
    if "proof" not in warmed:
        return f"{what}: {warmed['said']}"
    proof = warmed["proof"]
    return (
        f"{what}: {warmed['tuned']} tuned, {warmed['reused']} reused, {proof['asked']} asked,"
        f" {proof['hits']} hits, {proof['misses']} misses, {warmed['seconds']:.1f} s"
    )


def _verified(environment: Environment, caches: Path) -> Outcome:
    done = environment.run("-c", _CLI, "verify", str(caches), "--strict", "--format", "json")
    verdicts = [file["verdict"] for file in json.loads(done.stdout)["files"]] if done.stdout else []
    words = f"verify: {', '.join(verdicts)}" if done.returncode == 0 else done.stdout + done.stderr
    return Outcome(environment.version, done.returncode == 0 and set(verdicts) == {"hit"}, words)


def _shared_packages() -> list[str]:
    known = {sysconfig.get_paths()["purelib"], *site.getsitepackages()}
    return sorted({path for path in sys.path if path in known or path.endswith("site-packages")})


def _run(command: Sequence[str]) -> subprocess.CompletedProcess[str]:
    done = subprocess.run(command, capture_output=True, text=True, timeout=_SECONDS)
    if done.returncode:
        raise SystemExit(f"{' '.join(command)}: {done.stderr or done.stdout}")
    return done


if __name__ == "__main__":
    main()
