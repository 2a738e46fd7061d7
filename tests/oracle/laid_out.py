"""Random layers under every format: what SGLang holds of them once they are laid out, and what we say.

python -m tests.oracle.laid_out --seed 5 --count 2 [--release 0.5.17] [--record]
"""

from __future__ import annotations

import argparse
import gzip
import json
import math
import random
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import Any

from runtime.server.errors import ConfigError
from runtime.server.formats.kinds import Served, format_of, format_of_experts
from runtime.server.formats.read import quantized_of
from runtime.server.formats.tensors import BYTES, Format, Made, Matrix
from runtime.server.releases import RELEASES, Release
from tests.oracle.inside import run_inside
from tests.oracle.weights import MAJORS, METHODS, _experts, _linear
from tests.oracle.wheels import WORK, wheel_of

RECORDED = Path(__file__).parent / "recorded/laid_out.jsonl.gz"
Case = dict[str, Any]
# Numbers of an expert or a part, a kernel's workspace: what nobody counts of a layer.
SMALL = 6000
_BY_FLASHINFER = ("flashinfer_trtllm", "flashinfer_cutlass")
_FP8_GEMMS = {
    "H200": ("auto", "deep_gemm", "triton"),
    "B200": ("auto", "deep_gemm", "triton", *_BY_FLASHINFER),
}
_FP4_GEMMS = {"H200": ("marlin",), "B200": (*_BY_FLASHINFER, "flashinfer_cudnn", "marlin")}
_TRTLLM = ("flashinfer_trtllm", "flashinfer_trtllm_routed")
_FP8_EXPERTS = ("triton", "flashinfer_cutlass", "flashinfer_trtllm")
_MOE: dict[str, dict[str, tuple[str, ...]]] = {
    "fp8, blocks": {"H200": ("triton", "deep_gemm"), "B200": (*_FP8_EXPERTS, "deep_gemm")},
    "fp8, tensors": {"H200": ("triton",), "B200": ("triton", "flashinfer_cutlass")},
    "modelopt fp8": {"H200": ("triton", "flashinfer_cutlass"), "B200": _FP8_EXPERTS},
    "modelopt nvfp4": {"H200": ("marlin",), "B200": ("flashinfer_cutlass", "flashinfer_trtllm", "marlin")},
    "compressed nvfp4": {"H200": ("auto",), "B200": ("auto", "flashinfer_trtllm")},
    "mxfp8": {"H200": (), "B200": ("deep_gemm", *_TRTLLM)},
    "mxfp4": {"H200": ("marlin",), "B200": ("deep_gemm",)},
}
# What the answer of a stub, or of a layer that its class did not make, ends in; and what a GPU, a release or
# a format's symmetry ends, which is not asked of sizes.
_UNTOLD = (
    *("Current platform does not support", "No compressed-tensors", "'num_bits'", "AssertionError: "),
    *("FlexCtx", "dataclass type or instance", "MagicMock", "not enough values to unpack"),
    *("no attribute 'create_weights'", "DeepEPMoE", "is not a valid Fp", "Please check the quant"),
    "RuntimeError: shape '[",
)
_WITHOUT_MX = ("H200",)


def cases(seed: int, count: int, gpu: str) -> Iterator[Case]:
    rng = random.Random(f"laid out {seed} {gpu}")
    for what, (method, make) in METHODS.items():
        for linear in (True, False):
            for chosen in _chosen(what, linear, gpu):
                for _ in range(count):
                    layer = _wide(rng) if linear else _experts(rng, what)
                    case = {"what": what, "gpu": gpu, "method": method, "section": make(rng), **chosen}
                    if what == "modelopt nvfp4" and not linear:
                        case["gated"] = chosen["backend"] == "marlin" or rng.random() < 0.5
                    yield json.loads(json.dumps(case | layer))


def _chosen(what: str, linear: bool, gpu: str) -> Iterator[Case]:
    usual = {"backend": "auto", "fp8_gemm": "auto", "fp4_gemm": _FP4_GEMMS[gpu][0]}
    if what == "mxfp8" and gpu in _WITHOUT_MX:
        return
    if not linear:
        yield from ({**usual, "backend": one} for one in _MOE.get(what, {}).get(gpu, ("auto",)))
    elif what == "modelopt nvfp4":
        yield from ({**usual, "fp4_gemm": one} for one in _FP4_GEMMS[gpu])
    elif what != "mxfp4":
        yield from ({**usual, "fp8_gemm": one} for one in (_FP8_GEMMS[gpu] if "fp8" in what else ("auto",)))


def _wide(rng: random.Random) -> Case:
    """So large that what is small beside it is told from what is not."""
    case = _linear(rng)
    rows, columns = [128 * rng.randint(2, 8) for _ in case["rows"]], 128 * rng.choice((4, 8, 11, 16))
    if rng.random() < 0.3:
        rows[0] += 64
    ranks = case["all_rows"] // sum(case["rows"]), case["all_columns"] // case["columns"]
    sizes = {"rows": rows, "columns": columns, "all_columns": columns * ranks[1]}
    return case | sizes | {"all_rows": sum(rows) * ranks[0]}


def ours(case: Case, release: Release) -> int | str:
    """Bytes, or why SGLang ends."""
    section = case["section"]
    declared = case["method"] if section["quant_method"] == "modelopt" else section["quant_method"]
    quantized = quantized_of(section, declared)
    served = Served(
        MAJORS[case["gpu"]],
        case["backend"],
        is_gated=case.get("gated", True),
        nvfp4_trtllm_rows=release.nvfp4_trtllm_rows,
        fp8_gemm=case["fp8_gemm"],
        fp4_gemm=case["fp4_gemm"],
        fp8_by_flashinfer=release.fp8_gemm_layers,
        laid_out=release.laid_out,
    )
    try:
        if "experts" not in case:
            stem = case["name"].rpartition(".")[0]
            kind = quantized.of_linear([f"{stem}.{part}" for part in case["parts"]])
            cut = case["all_rows"] != sum(case["rows"])
            matrix = Matrix(tuple(case["rows"]), case["columns"], case["all_columns"], cut)
            return _held(format_of(kind, served), matrix)
        kind = quantized.of_experts(case["name"])
        made = format_of_experts(kind, served, case["hidden"], case["inner"])
        return sum(_held(made, matrix) for matrix in _matrices(case))
    except ConfigError as error:
        return error.message


def _matrices(case: Case) -> Iterable[Matrix]:
    inner, hidden, counts = case["inner"], case["hidden"], (case["experts"], case["all_experts"])
    yield Matrix(
        (inner, inner) if case.get("gated", True) else (inner,), hidden, hidden, case["ranks"] > 1, *counts
    )
    yield Matrix((hidden,), inner, inner * case["ranks"], False, *counts, is_down=True)


def _held(made: Format, matrix: Matrix) -> int:
    made.check(matrix)
    held = {one.name: _bytes(one) for one in made.tensors(matrix)}
    for change, one in made.after(matrix):
        if change.how == "dropped":
            del held[one.name]
        elif change.how != "copied":
            held[one.name] = _bytes(one)
        elif held.get(one.name) != _bytes(one):
            held[f"{one.name}, laid out"] = _bytes(one)
    return sum(held.values())


def _bytes(made: Made) -> int:
    return BYTES["bfloat16" if made.dtype == "model" else made.dtype] * math.prod(made.shape)


def agrees(case: Case, answer: Case, release: Release) -> bool:
    found = ours(case, release)
    if answer.get("tensors") == "plain" or any(one in answer.get("refused", "") for one in _UNTOLD):
        return True
    if isinstance(found, str) and "group or word" in found:
        return True  # which ends as it is loaded
    if "refused" in answer:
        return isinstance(found, str)
    return isinstance(found, int) and abs(found - answer["held"]) <= SMALL


def _as_layer(case: Case, release: Release) -> Case:
    """What the MoE layer makes of the inner size before: srt/layers/moe/fused_moe_triton/layer.py."""
    if "experts" not in case or case["backend"] not in _TRTLLM:
        return case
    own = case["what"] == "modelopt nvfp4" and case["gated"]
    rows = release.nvfp4_trtllm_rows if own else 128
    return {**case, "inner": -(-case["inner"] // rows) * rows}


def asked(seed: int, count: int, release: Release, work: Path) -> Iterator[tuple[Case, Case]]:
    wheel = wheel_of(release.version, work)
    for gpu in MAJORS:
        drawn = list(cases(seed, count, gpu))
        lines = [json.dumps(_as_layer(case, release)) for case in drawn]
        yield from zip(drawn, run_inside("read_after", wheel, gpu, work, lines, 900), strict=True)


def recorded() -> list[tuple[str, Case, Case]]:
    with gzip.open(RECORDED, "rt") as file:
        return [tuple(json.loads(line)) for line in file]


def main() -> None:
    options = argparse.ArgumentParser(
        prog="python -m tests.oracle.laid_out", description=(__doc__ or "")[:60]
    )
    options.add_argument("--seed", type=int, default=1)
    options.add_argument("--count", type=int, default=2, help="of each format, GPU and backend")
    options.add_argument("--release", action="append", choices=[one.version for one in RELEASES])
    options.add_argument("--work", type=Path, default=WORK, help="where the wheels are kept")
    options.add_argument("--record", action="store_true", help="keep the answers for the tests")
    told = options.parse_args()
    kept = []
    for release in RELEASES:
        if told.release and release.version not in told.release:
            continue
        pairs = list(asked(told.seed, told.count, release, told.work.absolute()))
        kept += [(release.version, *pair) for pair in pairs]
        wrong = [pair for pair in pairs if not agrees(*pair, release)]
        for case, answer in wrong[:12]:
            print(
                json.dumps(case), "\n  theirs:", json.dumps(answer)[:300], "\n  ours:  ", ours(case, release)
            )
        ended = sum("refused" in answer for _, answer in pairs)
        print(
            f"{release.version}: {len(pairs)} layers, {ended} of them end, {len(wrong)} otherwise", flush=True
        )
    if told.record:
        with gzip.GzipFile(RECORDED, "w", mtime=0) as file:
            file.writelines(json.dumps(row).encode() + b"\n" for row in kept)


if __name__ == "__main__":
    main()
