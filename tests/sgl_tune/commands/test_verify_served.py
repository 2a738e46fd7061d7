"""`verify` with a server: its own start reads the rank files, and 0 means that it measures nothing."""

import json
import subprocess
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from sgl_tune.asking.whom import ByServer
from sgl_tune.deployment.options import ServerFlags
from sgl_tune.recorded.asked import Asked, asking
from sgl_tune.servers.server import Server, server_at
from sgl_tune.verify.by_server import served
from sgl_tune.verify.environment import Target
from tests.ghost.c_running import BUILT
from tests.ghost.environments import SMALLEST, python_of
from tests.sgl_tune.running import PROGRAM, Ran, environment, run_here
from tests.sgl_tune.schemas import schema_faults
from tests.warm.recorded.test_on_ghost import CONFIG, FLAGS, SMALL

COMMAND = ("python", "-m", "sglang.launch_server", "--model-path", "org/m", *FLAGS.split())


class Place:
    """A cache directory, a model's config, and the server that is asked about them."""

    asked: Asked

    def __init__(self, folder: Path) -> None:
        self.cache_dir, self.config = folder / "cache", folder / "config.json"
        self.config.write_text(json.dumps({**json.loads(CONFIG.read_text()), **SMALL}))

    def verify(self, *more: object) -> Ran:
        ours = ("verify", "--gpu", "h200", "--server", python_of(SMALLEST), "--cache-dir", self.cache_dir)
        words = [*ours, "--model-config", self.config, *more, "--format", "json", "--", *COMMAND]
        command, variables = [*PROGRAM, *map(str, words)], environment(XDG_CACHE_HOME=str(BUILT.parent))
        done = subprocess.run(command, env=variables, capture_output=True, text=True, timeout=500)
        return Ran(done.returncode, done.stdout, done.stderr)

    def report(self, *more: object) -> tuple[int, dict[str, Any]]:
        ran = self.verify(*more)
        told: dict[str, Any] = json.loads(ran.out)
        assert schema_faults("verify", told) == []
        return ran.code, told


@pytest.fixture(scope="module")
def place(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Place]:
    """With the files that the server's own cold start saved."""
    found = Place(tmp_path_factory.mktemp("verified"))
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("XDG_CACHE_HOME", str(BUILT.parent))
        flags = ServerFlags.of(gpu="h200", cache_dir=str(found.cache_dir), model_config=str(found.config))
        server = server_at(python_of(SMALLEST))
        assert isinstance(server, Server)
        with asking(ByServer(flags, COMMAND, None), server, lambda event: None) as found.asked:
            plan = found.asked.plan()
            for record in plan.records:
                own = next(file.path for file in record.files if file.store.endswith("of this rank"))
                (typed,) = (path for path in plan.all_caches[0].paths if path.endswith(Path(own).name))
                (found.cache_dir / typed).parent.mkdir(parents=True, exist_ok=True)
                (found.cache_dir / typed).write_bytes(Path(own).read_bytes())
            yield found


def test_what_the_server_saved_it_reads_and_measures_nothing(place: Place) -> None:
    code, told = place.report()
    assert code == 0 and told["ok"], told
    assert {file["verdict"] for file in told["files"]} == {"hit"}
    ranks = told["server"]["ranks"]
    assert [[file["taken"] for file in rank["files"]] for rank in ranks] == [[True], [True]]
    assert not any(rank["profiled"] for rank in ranks)
    assert "its own start read the files and measured nothing" in told["verdict"]


def test_a_missing_entry_is_measured_by_the_server_and_named(place: Place) -> None:
    (file, *_) = sorted(place.cache_dir.rglob("rank_tp0*.json"))
    whole = file.read_bytes()
    document = json.loads(whole)
    del document[next(key for key in document if "gemm1" in key)]
    file.write_text(json.dumps(document))
    try:
        code, told = place.report()
    finally:
        file.write_bytes(whole)
    codes = {found["code"] for found in told["findings"]}
    codes |= {found["code"] for one in told["files"] for found in one["findings"]}
    assert code == 1 and {"server-profiles", "keys-missing"} <= codes
    assert [bool(rank["profiled"]) for rank in told["server"]["ranks"]] == [True, False]


def test_the_targets_environment_is_the_one_that_the_server_compares(place: Place) -> None:
    document = json.loads(next(place.cache_dir.rglob("rank_tp0*.json")).read_bytes())
    read = served(place.asked, Target({**document["_metadata"], "cublas_version": "1.2.3"}, "env.json"))
    (found, *_) = (one for one in read.findings if one.code == "server-ignores")
    assert "cublas_version" in found.message, "FlashInfer's own words"


@pytest.mark.parametrize(
    ("more", "said"),
    [
        (("--replay",), "--replay does not go with it"),
        (("--gpu", "sm90"), "--gpu sm90 does not go with it"),
        (("--model-path", "m", "--gpu", "h200"), "no SGLang is installed there"),
    ],
)
def test_what_a_server_does_not_answer_is_named(more: tuple[str, ...], said: str, tmp_path: Path) -> None:
    ran = run_here("verify", "--server", tmp_path, "--cache-dir", tmp_path, "--model-path", "m", *more)
    assert ran.code == 2 and (said in ran.err or str(tmp_path) in ran.err), ran.err
