"""A stock SGLang's start shows which Triton configurations it looks for; its layers compile without a GPU."""

import json
import os
import subprocess
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from runtime.record.record import Record
from runtime.sglang.tactics import Tactics
from sgl_tune.config_files.contents import contents
from sgl_tune.config_files.provenance import SCHEMA, Bucket, Provenance
from sgl_tune.config_files.root import Tuned, own_files, write_root
from sgl_tune.config_tuning.plan import config_plan, notes
from tests.ghost.stock import GPU, Smallest, Stock

ROOT = Path(__file__).resolve().parents[2]
MODEL = {
    "architectures": ["MixtralForCausalLM"], "model_type": "mixtral", "hidden_size": 256,
    "intermediate_size": 128, "num_hidden_layers": 1, "num_attention_heads": 4, "num_key_value_heads": 2,
    "num_local_experts": 4, "num_experts_per_tok": 2, "vocab_size": 1024, "max_position_embeddings": 2048,
    "rms_norm_eps": 1e-5, "rope_theta": 10000.0, "hidden_act": "silu", "torch_dtype": "bfloat16",
}  # fmt: skip
NAME = f"E=4,N=128,device_name={GPU.name.replace(' ', '_')}"
GRAPHS = ("--cuda-graph-max-bs-decode", "2", "--cuda-graph-backend-prefill", "disabled")
FLAGS = ("--attention-backend", "triton", "--sampling-backend", "pytorch", *GRAPHS)
ENTRY = {"BLOCK_SIZE_M": 16, "BLOCK_SIZE_N": 64, "BLOCK_SIZE_K": 64, "GROUP_SIZE_M": 1}


@pytest.fixture(scope="module")
def work(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tmp_path_factory.mktemp("work")


@pytest.fixture(scope="module")
def ask(stock: Stock, work: Path) -> Callable[..., Record]:
    (work / "config.json").write_text(json.dumps(MODEL))
    argv = ["--model-path", str(work), "--mem-fraction-static", "0.5", *FLAGS]
    return lambda **more: stock.ask(argv, **more)


@pytest.fixture(scope="module")
def record(ask: Callable[..., Record]) -> Record:
    return ask()


@pytest.fixture(scope="module")
def said(record: Record, smallest: Smallest, work: Path) -> dict[str, Any]:
    """What the server's Python says of a layer compiled, and of files loaded, on a GPU that is not there. The
    ghost's libraries replace CUDA's; its hooks are left out."""
    for place, raw in enumerate(FILES.values()):
        folder = work / f"judged.{place}/configs/triton_3_6_0"
        folder.mkdir(parents=True)
        (folder / f"{NAME}.json").write_bytes(raw)
    job = {"call": record.to_json(), "arguments": config_plan([record], work).arguments}
    (work / "job.json").write_text(json.dumps(job))
    variables = {"PATH": os.environ["PATH"], "HOME": str(work), "PYTHONPATH": str(ROOT)}
    command = [str(smallest.python), "-c", _IN_THE_SERVER, str(work), str(len(FILES)), GPU.name]
    variables |= {**smallest.ghost().environment(), "TRITON_CACHE_DIR": str(work / "triton")}
    done = subprocess.run(command, env=variables, capture_output=True, text=True, timeout=600)
    assert done.returncode == 0, (done.stdout + done.stderr)[-4000:]
    return dict(json.loads(done.stdout.splitlines()[-1]))


def test_a_start_shows_the_files_it_looked_for_and_did_not_find(record: Record, smallest: Smallest) -> None:
    assert record.ending.how == "ready", record.ending
    assert [Path(one.asked).name for one in record.configs] == [f"{NAME}.json", f"{NAME}_down.json"]
    assert {one.triton for one in record.configs} == {"3.6.0"}
    assert not any(one.found for one in record.configs)
    assert Path(record.configs[0].asked).is_relative_to(smallest.packages)
    (layer,) = record.layers
    assert layer.files == tuple(one.asked for one in record.configs) and not layer.unreplayable
    assert layer.named["w1"]["tensor"]["shape"] == [4, 256, 256]
    assert Record.from_json(record.to_json()) == record


def test_its_layer_is_compiled_without_a_gpu(said: dict[str, Any], work: Path) -> None:
    assert said["compiled"] == {"tried": 3, "failed": {}}
    kernels = list((work / "triton").rglob("fused_moe_kernel.cubin"))
    assert len(kernels) == 6 and all(kernel.stat().st_size for kernel in kernels)


FILES: dict[str, bytes] = {
    "good": json.dumps({"1": ENTRY, "64": {**ENTRY, "num_warps": 4, "num_stages": 3}}).encode(),
    "empty": b"",
    "cut off": b'{"1": {"BLOCK_SIZE_M": 16',
    "a list": b"[1, 2]",
    "a word for a size": b'{"many": {}}',
    "no sizes": b"{}",
    "a size with a blank": json.dumps({" 8": ENTRY}).encode(),
    "not UTF-8": b'{"\xff": 1}',
    "nested too deep": b"[" * 100_000,
    "null": b"null",
}


def test_a_file_is_judged_as_sglangs_own_loader_would(said: dict[str, Any]) -> None:
    for name, real in zip(FILES, said["loaded"], strict=True):
        ours = contents(FILES[name])
        assert bool(ours.kills) == (real is None), name
        assert ours.kills or {str(rows): entry for rows, entry in ours.entries.items()} == real, name


_IN_THE_SERVER = """
import json, os, sys
from runtime.moe_configs.inside import pretending
pretending.be_a(sys.argv[3], 9, 0)
import runtime.moe_configs.compiling as compiling
from runtime.moe_configs.candidates import Choice, Layer, Tile
from runtime.moe_configs.inside.places import places
from runtime.moe_configs.layer import Settings
from runtime.record.record import Record
here = places()
here.configs.get_exec = lambda: Settings({"enable_deterministic_inference": False})
loaded = []
for number in range(int(sys.argv[2])):
    os.environ["SGLANG_MOE_CONFIG_DIR"] = f"{sys.argv[1]}/judged.{number}"
    here.configs.get_moe_configs.cache_clear()
    try:
        loaded.append(here.configs.get_moe_configs(4, 128, None))
    except Exception:
        loaded.append(None)
del os.environ["SGLANG_MOE_CONFIG_DIR"]
here.configs.get_moe_configs.cache_clear()
told = json.load(open(f"{sys.argv[1]}/job.json"))
layer = Record.from_json(told["call"]).layers[0]
plain = Tile(16, 64, 64, 1, 4, 3)
tma = Choice(plain, Tile(16, 128, 64, 1, 4, 3, tma=True))
compiling.choices = lambda kind, rows: [Choice(plain, plain), tma]
done = compiling.compile_all(layer, Layer(4, 2, "", 0, True), [16], here, told["arguments"], (9, 0), 2)
print(json.dumps({"compiled": {"tried": done.tried, "failed": done.failed}, "loaded": loaded}))
"""


def test_a_root_holds_every_file_of_the_package_and_a_start_takes_ours(
    ask: Callable[..., Record], record: Record, smallest: Smallest, work: Path
) -> None:
    assert len(config_plan([record], work).untuned) == 1
    source = smallest.packages / "sglang/srt/layers/moe/moe_runner/triton_utils/configs"
    root = work / "moe_configs"
    told = Provenance(SCHEMA, GPU.name, "3.6.0", "0.5.17", "", {}, {"8": Bucket(2.0, 1.0, 2.0, True)})
    ours = [Tuned(f"{NAME}{down}.json", {8: ENTRY}, told) for down in ("", "_down")]
    written = write_root(root, source, ours)
    plan = config_plan([record], work)
    assert [(one.state, bool(one.tuned)) for one in plan.files] == [("not there", True)] * 2
    assert plan.untuned == () and config_plan([record], work, again=True).untuned
    files = [file.relative_to(source) for file in own_files(source)]
    assert len(files) > 300
    assert all((root / "configs" / name).read_bytes() == (source / name).read_bytes() for name in files)
    there = ask(tactics=Tactics({}, tiles=root))
    assert [one.found for one in there.configs] == [str(path) for path in written]
    assert {one.name for one in there.kernels} == {one.name for one in record.kernels}
    assert {one.digest for one in there.kernels} != {one.digest for one in record.kernels}
    assert next(notes(config_plan([there], work))).startswith(f"{NAME}.json: found in {root}; tuned: ")
