"""The verdict of `verify` against a real FlashInfer, which loads the file, looks up every key that a server
asks for, and saves."""

import random
from collections import Counter
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import flashinfer
from flashinfer.autotuner import AutoTuner, TunableRunner, TuningConfig

from runtime.flashinfer.versions import HOT, flashinfer_of
from sgl_tune.cache.asked import ExpectedEntry, TunedOp
from sgl_tune.export.store_writer import fields_of
from sgl_tune.verify.environment import Target
from sgl_tune.verify.expected import Expected
from sgl_tune.verify.judge import Judge
from tests.sgl_tune.cache.corpus import moe_entries, moe_key
from tests.stock.loader_differential import TARGET, pinned_environment, stock_load, stock_save
from tests.stock.mutations import BUCKETS, MORE, mutated_files

ROW = flashinfer_of(TARGET["flashinfer_version"])
LEFT_OUT = "" if ROW.has_extras else moe_key(1)[moe_key(1).index(", (torch.") : -1]  # of each key
KEYS = [key.replace(LEFT_OUT, "") for key in moe_entries(BUCKETS)]
FIELDS: dict[str, Any] = {key: fields_of(key) for key in KEYS}
VERDICTS = {"hit", "partial", "ignored", "crash"} | ({"replaced"} if ROW.tells_unknown else set())


class MoERunner(TunableRunner):
    """Found by its class's name, as FlashInfer's own, and never run."""

    def __init__(self, extras: list[tuple[Any, ...]]) -> None:
        self.extras = extras[0] if extras else ()

    def __hash__(self) -> int:
        return 1

    def get_cache_key_extras(self, inputs: list[Any]) -> tuple[Any, ...]:
        return self.extras

    def get_valid_tactics(self, inputs: list[Any], profile: Any) -> list[Any]:
        return []

    def forward(self, inputs: list[Any], tactic: Any = -1, **_: Any) -> None:
        raise NotImplementedError


def _stock_verdict(path: Path) -> str:
    loaded = stock_load(path, TARGET)
    if loaded["verdict"] == "ignored":
        return "ignored" if loaded["hard"] else "replaced"
    if loaded["verdict"] != "loaded" or isinstance(stock_save(path), str):
        return "crash"
    tuner = AutoTuner()
    assert tuner.load_configs(str(path))
    tuner.is_tuning_mode = True
    try:
        found = [
            tuner.search_cache(op, [MoERunner(extras)], profile, TuningConfig(), inputs=[])[0]
            for op, _, profile, *extras in FIELDS.values()
        ]
    except TypeError:  # a list as a runner's name, before 0.6.16
        return "crash"
    return "hit" if all(found) else "partial"


def _differences(
    folder: Path, files: int, seed: int, target: Mapping[str, str] = TARGET
) -> tuple[Counter[str], list[str]]:
    asked = {key: (ExpectedEntry(key, 1, "tuning"),) for key in FIELDS}
    ops = tuple(TunedOp(of[0], "MoERunner", HOT, asked[key]) for key, of in FIELDS.items())
    judge = Judge(Target.of(target, "the test", None), Expected("f", "key", (), ops))
    path, tally, found = folder / "rank_tp0_pp0_dp0.json", Counter[str](), []
    with pinned_environment(TARGET):
        for name, raw in mutated_files(files, seed, TARGET, MORE):
            raw = raw.replace(LEFT_OUT.encode(), b"")
            path.write_bytes(raw)
            judged, stock = judge.judge(path, raw), _stock_verdict(path)
            ours = judged.verdict.value
            if any(one.code == "tactic-unusable" for one in judged.findings) and stock == "hit":
                stock = ours  # a lookup does not tell what the kernel takes
            tally[ours] += 1
            found += [f"{name}: FlashInfer {stock}, verify {ours}"] if stock != ours else []
    return tally, found


def test_verdicts_on_damaged_caches_are_flashinfers(tmp_path: Path) -> None:
    seed = random.randrange(1 << 32)
    tally, found = _differences(tmp_path, 200, seed)
    assert found == [], f"seed {seed}"
    assert all(tally[verdict] > 5 for verdict in VERDICTS), tally
    print(f"{flashinfer.__version__}: {dict(tally)}, no difference, seed {seed}")


def test_a_wrong_verdict_would_be_seen(tmp_path: Path) -> None:
    assert _differences(tmp_path, 40, 1, {**TARGET, "gpu": "NVIDIA B200"})[1] != []
