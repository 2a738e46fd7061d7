"""Random layers under every format: SGLang's create_weights beside our rows, tensor by tensor.

python -m tests.oracle.weights --seed 5 --count 40 [--listed] [--record]
"""

from __future__ import annotations

import argparse
import gzip
import json
import random
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from runtime.server.errors import ConfigError
from runtime.server.formats.kinds import Served, format_of, format_of_experts
from runtime.server.formats.read import quantized_of
from runtime.server.formats.tensors import Matrix
from tests.oracle.inside import run_inside
from tests.oracle.wheels import WORK, wheel_of

RECORDED = Path(__file__).parent / "recorded/weights.jsonl.gz"
LISTED_RECORDED = RECORDED.with_name("plain_layers.jsonl.gz")
MAJORS = {"H200": 9, "B200": 10}
Case = dict[str, Any]
_FP8 = {"num_bits": 8, "type": "float", "symmetric": True, "dynamic": False}
_TOKENS = {"num_bits": 8, "type": "float", "strategy": "token", "symmetric": True, "dynamic": True}
_FP4 = {"num_bits": 4, "type": "float", "strategy": "tensor_group", "group_size": 16, "symmetric": True}
_LAYERS = {
    "qkv": ("self_attn.qkv_proj", "QKVParallelLinear", ("q_proj", "k_proj", "v_proj")),
    "gate_up": ("mlp.gate_up_proj", "MergedColumnParallelLinear", ("gate_proj", "up_proj")),
    "down": ("mlp.down_proj", "RowParallelLinear", ("down_proj",)),
    "q_b": ("self_attn.q_b_proj", "ColumnParallelLinear", ("q_b_proj",)),
}


def _groups(weights: Case, inputs: Case | None, form: str) -> Case:
    group = {"targets": ["Linear"], "weights": weights, "input_activations": inputs}
    return {
        "quant_method": "compressed-tensors",
        "format": form,
        "config_groups": {"group_0": group},
        "ignore": [],
    }


def _integers(rng: random.Random) -> Case:
    bits, group = rng.choice((4, 8)), rng.choice((32, 64, 128, None))
    weights = {
        "num_bits": bits, "type": "int", "symmetric": rng.random() < 0.7, "dynamic": False,
        "strategy": "channel" if group is None else "group", "group_size": group,
        "actorder": rng.choice((None, "static", "weight")) if group else None,
    }  # fmt: skip
    return _groups(weights, None, "pack-quantized")


def _bytes(rng: random.Random) -> Case:
    strategy, static = rng.choice(("tensor", "channel")), rng.random() < 0.5
    if rng.random() < 0.4:
        weights = {"num_bits": 8, "type": "int", "symmetric": True, "dynamic": False, "strategy": strategy}
        inputs = {"num_bits": 8, "type": "int", "symmetric": True, "dynamic": not static}
        return _groups(weights, {**inputs, "strategy": "tensor" if static else "token"}, "int-quantized")
    inputs = {**_FP8, "strategy": "tensor"} if static and strategy == "tensor" else _TOKENS
    return _groups({**_FP8, "strategy": strategy}, inputs, "float-quantized")


def _fp8_blocks(rng: random.Random) -> Case:
    weights = {**_FP8, "strategy": "block", "block_structure": [128, 128]}
    return _groups(weights, {**_TOKENS, "strategy": "group", "group_size": 128}, "float-quantized")


def _modelopt(algorithm: str) -> Case:
    return {"quant_method": "modelopt", "quant_algo": algorithm, "ignore": [], "group_size": 16}


METHODS: dict[str, tuple[str, Any]] = {
    "fp8, blocks": ("fp8", lambda rng: {"quant_method": "fp8", "activation_scheme": "dynamic",
                                        "weight_block_size": rng.choice(([128, 128], [64, 128]))}),
    "fp8, tensors": ("fp8", lambda rng: {"quant_method": "fp8",
                                         "activation_scheme": rng.choice(("dynamic", "static"))}),
    "mxfp8": ("mxfp8", lambda rng: {"quant_method": "mxfp8", "activation_scheme": "dynamic"}),
    "modelopt fp8": ("modelopt_fp8", lambda rng: _modelopt("FP8")),
    "modelopt nvfp4": ("modelopt_fp4", lambda rng: _modelopt(rng.choice(("NVFP4", "NVFP4", "NVFP4_AWQ")))),
    "mxfp4": ("mxfp4", lambda rng: {"quant_method": "mxfp4"}),
    "awq": ("awq_marlin", lambda rng: {"quant_method": "awq", "bits": 4, "zero_point": True,
                                       "group_size": rng.choice((32, 64, 128))}),
    "gptq": ("gptq_marlin", lambda rng: {"quant_method": "gptq", "bits": rng.choice((4, 8)), "sym": True,
                                         "group_size": rng.choice((-1, 32, 128)),
                                         "desc_act": rng.random() < 0.5}),
    "packed integers": ("compressed-tensors", _integers),
    "bytes": ("compressed-tensors", _bytes),
    "compressed fp8 blocks": ("compressed-tensors", _fp8_blocks),
    "compressed nvfp4": ("compressed-tensors",
                         lambda rng: _groups(_FP4, {**_FP4, "dynamic": "local"}, "nvfp4-pack-quantized")),
    "w8a8 int8": ("w8a8_int8", lambda rng: {"quant_method": "w8a8_int8"}),
    "w8a8 fp8": ("w8a8_fp8", lambda rng: {"quant_method": "w8a8_fp8"}),
    "blockwise int8": ("blockwise_int8", lambda rng: {"quant_method": "blockwise_int8",
                                                      "activation_scheme": "dynamic",
                                                      "weight_block_size": [128, 128]}),
    "w4afp8": ("w4afp8", lambda rng: {"quant_method": "w4afp8"}),
}  # fmt: skip
_BACKENDS = {
    "modelopt nvfp4": {
        "H200": ("auto", "marlin"),
        "B200": ("flashinfer_trtllm", "flashinfer_cutlass", "auto"),
    },
    "mxfp4": {
        "H200": ("marlin", "triton_kernel", "flashinfer_mxfp4"),
        "B200": ("flashinfer_mxfp4", "deep_gemm"),
    },
}


# Those that read a list of what stays plain, and under which name.
_LISTS = {
    "fp8, blocks": ("ignored_layers", "modules_to_not_convert"),
    "mxfp8": ("ignored_layers", "modules_to_not_convert"),
    "modelopt fp8": ("ignore", "exclude_modules"),
    "modelopt nvfp4": ("ignore", "exclude_modules"),
    "awq": ("modules_to_not_convert",),
    "bytes": ("ignore",),
    "w8a8 int8": ("ignore",),
}


def _listed(rng: random.Random, case: Case) -> list[str]:
    """Names near to the layer's: a part of it, what it lies in, another's, patterns. What is run as one has
    no name of its own: whether that counts is the model's to say."""
    stem, _, last = case["name"].rpartition(".")
    parts = [f"{stem}.{part}" for part in case.get("parts", (last,))]
    last = parts[0].rpartition(".")[2]
    names = [*parts, stem, last, stem.replace("model.", ""), "model.layers.0", "layers.0"]
    names += [f"{stem}*", f"*.{last}", "*layers.0*", "*layers.0.self*proj", "lm_head", "model.layers.1"]
    names += [stem.replace(".0.", ".1."), f"{stem}.", parts[0][:-1], f"re:.*{last}$", r"re:.*layers\.0\..*"]
    names += [
        "re:.*self_attn.*",
        "mlp",
        "self_attn",
        "model.layers.0.self_attn.q_b_proj",
        "mlp.gate",
        "q_b_proj",
    ]
    chosen = rng.sample(names, rng.choice((1, 1, 2, 3)))
    return [*chosen, *parts] if rng.random() < 0.15 else chosen


def listed_cases(seed: int, count: int, gpu: str) -> Iterator[Case]:
    """Of one size: what is asked is which of them are plain."""
    rng = random.Random(f"listed {seed} {gpu}")
    for name, keys in _LISTS.items():
        method, make = METHODS[name]
        for number in range(count):
            backend = rng.choice(_BACKENDS.get(name, {}).get(gpu, ("auto",)))
            case = {"what": f"{name}, listed", "gpu": gpu, "method": method, "backend": backend}
            of_experts = number % 5 == 0 and name != "w8a8 int8"
            case |= {**(_experts(rng, name) if of_experts else _linear(rng)), "ranks": 1}
            if "parts" in case:
                rows = [256 for _ in case["parts"]]
                case |= {"rows": rows, "all_rows": sum(rows), "columns": 256, "all_columns": 256}
            else:
                case |= {"experts": 2, "all_experts": 2, "hidden": 256, "inner": 256}
            yield case | {"section": {**make(rng), rng.choice(keys): _listed(rng, case)}}


def cases(seed: int, count: int, gpu: str) -> Iterator[Case]:
    rng = random.Random(f"{seed} {gpu}")
    for name, (method, make) in METHODS.items():
        for number in range(count):
            backend = rng.choice(_BACKENDS.get(name, {}).get(gpu, ("auto",)))
            case = {"what": name, "gpu": gpu, "method": method, "section": make(rng), "backend": backend}
            yield case | (_experts(rng, name) if number % 2 or name == "mxfp4" else _linear(rng))


def _linear(rng: random.Random) -> Case:
    kind = rng.choice(tuple(_LAYERS))
    name, cls, parts = _LAYERS[kind]
    ranks, unit = rng.choice((1, 1, 2, 4)), rng.choice((128, 128, 128, 64, 32))
    rows = [unit * rng.randint(1, 4) for _ in parts]
    columns = unit * rng.randint(1, 4)
    over = (1, ranks) if kind == "down" else (ranks, 1)
    return {
        "name": f"model.layers.0.{name}", "class": cls, "parts": parts, "ranks": ranks, "rows": rows,
        "all_rows": sum(rows) * over[0], "columns": columns, "all_columns": columns * over[1],
    }  # fmt: skip


def _experts(rng: random.Random, what: str) -> Case:
    ranks, local = rng.choice((1, 2, 4)), rng.randint(1, 4)
    whole = what == "w4afp8" or rng.random() < 0.7
    inner = 128 * rng.randint(1, 3) if whole else 32 * rng.randint(2, 6)
    hidden = 256 * rng.randint(1, 3) if what != "mxfp4" or rng.random() < 0.5 else 64 * rng.randint(2, 9)
    sizes = {"experts": local, "all_experts": local * rng.randint(1, 2), "hidden": hidden, "inner": inner}
    return {"name": "model.layers.0.mlp.experts", "ranks": ranks, **sizes}


def ours(case: Case) -> list[list[Any]] | str:
    """As `read_weights` answers, in no order; why not, where the server would end."""
    declared = {"modelopt": case["method"]}.get(
        case["section"]["quant_method"], case["section"]["quant_method"]
    )
    quantized = quantized_of(case["section"], declared)
    served = Served(MAJORS[case["gpu"]], case["backend"])
    try:
        if "experts" in case:
            return sorted(_experts_of(case, quantized.of_experts(case["name"]), served))
        stem = case["name"].rpartition(".")[0]
        kind = quantized.of_linear([f"{stem}.{part}" for part in case["parts"]])
        made = format_of(kind, served)
        cuts_rows = case["all_rows"] != sum(case["rows"])
        matrix = Matrix(tuple(case["rows"]), case["columns"], case["all_columns"], cuts_rows)
        made.check(matrix)
        return sorted([one.name, _dtype(one.dtype), list(one.shape)] for one in made.tensors(matrix))
    except ConfigError as error:
        return error.message


def _experts_of(case: Case, kind: Any, served: Served) -> Iterator[list[Any]]:
    ranks, inner = case["ranks"], case["inner"]
    made = format_of_experts(kind, served, case["hidden"], inner)
    counts = False, case["experts"], case["all_experts"]
    up = Matrix((inner, inner), case["hidden"], case["hidden"], ranks > 1, *counts[1:])
    down = Matrix((case["hidden"],), inner, inner * ranks, *counts, is_down=True)
    for prefix, matrix in (("w13", up), ("w2", down)):
        made.check(matrix)
        for one in made.tensors(matrix):
            name = one.name.replace("bias", "weight_bias")
            yield [f"{prefix}_{name}", _dtype(one.dtype), list(one.shape)]


def _dtype(dtype: str) -> str:
    return "bfloat16" if dtype == "model" else dtype


def theirs(case: Case, answer: Case) -> list[list[Any]] | None:
    """None where it ends."""
    found = answer.get("tensors")
    if found == [["plain"]]:
        return _plain(case)
    return None if found is None else sorted(found)


def _plain(case: Case) -> list[list[Any]]:
    if "experts" not in case:
        return [["weight", "bfloat16", [sum(case["rows"]), case["columns"]]]]
    count, hidden, inner = case["experts"], case["hidden"], case["inner"]
    return [
        ["w13_weight", "bfloat16", [count, 2 * inner, hidden]],
        ["w2_weight", "bfloat16", [count, hidden, inner]],
    ]


def recorded(path: Path = RECORDED) -> list[tuple[Case, Case]]:
    with gzip.open(path, "rt") as file:
        return [tuple(json.loads(line)) for line in file]


def main() -> None:
    options = argparse.ArgumentParser(prog="python -m tests.oracle.weights", description=(__doc__ or "")[:60])
    options.add_argument("--seed", type=int, default=1)
    options.add_argument("--count", type=int, default=20, help="of each format and GPU")
    options.add_argument("--release", default="0.5.23")
    options.add_argument("--work", type=Path, default=WORK)
    options.add_argument(
        "--listed", action="store_true", help="which layers a checkpoint's list leaves plain"
    )
    options.add_argument("--record", action="store_true", help="keep the answers for the tests")
    asked = options.parse_args()
    pairs = []
    for gpu in MAJORS:
        draw = listed_cases if asked.listed else cases
        drawn = [json.loads(json.dumps(case)) for case in draw(asked.seed, asked.count, gpu)]
        lines = [json.dumps({**case, "hidden": _as_layer(case)}) for case in drawn]
        wheel = wheel_of(asked.release, asked.work.absolute())
        answers = run_inside("read_weights", wheel, gpu, asked.work.absolute(), lines, 600)
        pairs.extend(zip(drawn, answers, strict=True))
    if asked.record:
        with gzip.GzipFile(LISTED_RECORDED if asked.listed else RECORDED, "w", mtime=0) as file:
            file.writelines(json.dumps(pair).encode() + b"\n" for pair in pairs)
    wrong = [(case, answer) for case, answer in pairs if not agrees(case, answer)]
    for case, answer in wrong[:12]:
        print(json.dumps(case), "\n  theirs:", json.dumps(answer)[:600], "\n  ours:  ", ours(case))
    ended = sum("refused" in answer for _, answer in pairs)
    print(f"{len(pairs)} layers, {ended} of them refused, {len(wrong)} otherwise than ours")


def agrees(case: Case, answer: Case) -> bool:
    """A group that two ranks would have to share is refused here, and there only by what loads it."""
    found, made = ours(case), theirs(case, answer)
    if isinstance(found, str) and "group or word" in found:
        return True
    return isinstance(found, str) if made is None else found == made


def _as_layer(case: Case) -> int:
    """What the MoE layer makes of the hidden size before: srt/layers/moe/fused_moe_triton/layer.py."""
    hidden: int = case.get("hidden", 0)
    return -(-hidden // 256) * 256 if case["backend"] == "flashinfer_mxfp4" else hidden


if __name__ == "__main__":
    main()
