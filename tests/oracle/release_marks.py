"""What a release's row says, read in its wheel: lists that stand there by name, and marks of what it has.

python -m tests.oracle.release_marks            # beside the rows, for every release that is unpacked
python -m tests.oracle.release_marks --record   # what tests/server/test_releases.py holds the rows against
"""

from __future__ import annotations

import argparse
import ast
import json
import re
from collections.abc import Iterable
from pathlib import Path
from typing import Any

from runtime.server.releases import RELEASES, Release
from tests.oracle.wheels import WORK, Wheel, wheel_of

RECORDED = Path(__file__).parent / "recorded/release_marks.json"
Marks = dict[str, Any]

# The field, and the list or table of SGLang's that it is.
LISTS = {
    "fused_all_reduce": "_FLASHINFER_ALLREDUCE_FUSION_ARCHS",
    "breakable_multimodal": "multimodal_breakable_cuda_graph_supported_model_archs",
    "deterministic_backends": "DETERMINISTIC_ATTENTION_BACKEND_CHOICES",
    "deterministic_prefixes": "RADIX_SUPPORTED_DETERMINISTIC_ATTENTION_BACKEND",
    "goes_with": "compatible_quantization_methods",
}
_AUTOTUNE = "srt/model_executor/**/flashinfer_autotune.py"
_FLASHINFER = "srt/layers/attention/flashinfer_backend.py"
_ARGUMENTS = "srt/server_args.py srt/arg_groups/*.py"
# The field, the files that its comment names, and what stands there where the release has it.
PRESENT = {
    "locks_deep_gemm": ("srt/layers/deep_gemm_wrapper/compile_utils.py", "def _local_rank_compile_lock"),
    "caps_pipelined_prefill_graphs": (_ARGUMENTS, "_DEFAULT_PP_PREFILL_CUDA_GRAPH_MAX_TOKENS"),
    "has_extend_pass": ("srt/environ.py", r"SGLANG_FLASHINFER_AUTOTUNE_EXTEND\b"),
    "fused_finalize_by_environment": ("srt/environ.py", r"SGLANG_FLASHINFER_MOE_FUSED_FINALIZE\b"),
    "keys_kernels_by_content": ("kernels/jit/utils/compile/cache.py", "."),
    "deletes_unequal_ranks": (_AUTOTUNE, r"unlink|os\.remove"),
    "deterministic_never_tunes": (_AUTOTUNE, "enable_deterministic_inference"),
    "always_saves": (_AUTOTUNE, "save"),
    "megamoe_files_by_gpu": (_AUTOTUNE, "mega_?moe"),
    "routes_by_named_method": ("srt/layers/moe/topk.py", "routing_method_type"),
    "has_hpc_ops": (_ARGUMENTS, '"hpc_ops"'),
    "has_cutlass_mla": (_ARGUMENTS, '"cutlass_mla"'),
    "fuses_nvfp4_swiglu": ("srt/models/deepseek_v2.py", "(?i)swiglu.*nvfp4|nvfp4.*swiglu"),
    "fuses_all_reduce_over_nodes": (_ARGUMENTS, r"nnodes == 1 or (get_platform\(\)\.)?is_sm100"),
    "plans_windows": (_FLASHINFER, r'plan_kwargs\["window_left"\]'),
    "cutlass_prefills_by_heads": (_FLASHINFER, "cutlass_supported_head_dims"),
    "runs_fp8_experts_elsewhere": (
        "srt/layers/quantization/fp8.py",
        r"moe_runner_backend\.is_flashinfer_cutlass\(\)",
    ),
    "keeps_sink_kv_wide": (_ARGUMENTS, "has_attention_sinks = bool"),
    "has_qwen3_vl_defaults": ("srt/arg_groups/model_overrides/qwen3_vl.py", "def large_hopper_qwen3_vl"),
}

# What stands there where the release does not have it.
ABSENT = {"fuses_all_reduce_on_h20": (_ARGUMENTS, "not is_h20_device")}
NUMBERS = {
    "prefill_graphs_need": (
        "srt/model_executor/**/cuda_graph_setup.py",
        r"_MIN_AUTO_PREFILL_CUDA_GRAPH_FREE_MEMORY_GB = ([\d.]+)",
        0.0,
    ),
    "mla_prefill_graph_top": (_ARGUMENTS, r"max_bs = min\((\d+), cfg.chunked_prefill_size\)", 2048),
}


def marks_of(one: Wheel) -> Marks:
    wheel = one.folder / "sglang"
    found: Marks = {field: _listed(wheel, name) for field, name in LISTS.items()}
    found |= {"flashinfer": one.flashinfer, "transformers": one.transformers}
    found["fused_all_reduce"] = found["fused_all_reduce"] or _listed_in_place(wheel)
    for has, table in ((True, PRESENT), (False, ABSENT)):
        for field, (files, said) in table.items():
            found[field] = (re.search(said, _text(wheel, files)) is not None) is has
    for field, (files, said, otherwise) in NUMBERS.items():
        number = re.search(said, _text(wheel, files))
        found[field] = type(otherwise)(number[1]) if number else otherwise
    return {field: value for field, value in found.items() if value is not None}


def marks_of_row(row: Release, fields: Iterable[str]) -> Marks:
    return {field: _plain(getattr(row, field)) for field in fields}


def _text(wheel: Path, files: str) -> str:
    return "".join(path.read_text() for one in files.split() for path in sorted(wheel.glob(one)))


def _listed(wheel: Path, name: str) -> list[Any] | None:
    """Sorted; of a table of lists, its pairs."""
    for path in sorted(wheel.glob("srt/**/*.py")):
        if name in (text := path.read_text()):
            for node in ast.walk(ast.parse(text)):
                if isinstance(node, ast.Assign) and ast.unparse(node.targets[0]) == name:
                    return _plain(_value(node.value))
    return None


def _listed_in_place(wheel: Path) -> list[str]:
    """Before it had a name of its own: the architectures under which the fusion is turned on."""
    tree = ast.parse((wheel / "srt/server_args.py").read_text())
    tests = [
        ast.unparse(node.test)
        for node in ast.walk(tree)
        if isinstance(node, ast.If) and "allreduce_fusion" in ast.unparse(node.body[0])
    ]
    return sorted({name for test in tests for name in re.findall(r"'(\w+For(?:CausalLM|Cond\w+))'", test)})


def _value(node: ast.expr) -> Any:
    told = node.args[0] if isinstance(node, ast.Call) else node
    return ast.literal_eval(told)


def _plain(value: Any) -> Any:
    if isinstance(value, dict):
        value = [(key, one) for key, several in value.items() for one in several]
    if isinstance(value, (list, tuple, set, frozenset)):
        return sorted([*one] if isinstance(one, tuple) else one for one in {*value})
    return value


def main() -> None:
    options = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    options.add_argument("--record", action="store_true")
    options.add_argument("--work", type=Path, default=WORK)
    asked = options.parse_args()
    unpacked = [row for row in RELEASES if (asked.work / "unpacked" / row.version).is_dir()]
    wheels = [wheel_of(row.version, asked.work) for row in unpacked]
    found = {one.release: marks_of(one) for one in wheels}
    for row in unpacked:
        ours = marks_of_row(row, found[row.version])
        apart = {name: (ours[name], told) for name, told in found[row.version].items() if ours[name] != told}
        print(row.version, apart or "agrees")
    if asked.record:
        kept = json.loads(RECORDED.read_text()) | found
        ordered = {row.version: kept[row.version] for row in RELEASES if row.version in kept}
        RECORDED.write_text(json.dumps(ordered, indent=1) + "\n")


if __name__ == "__main__":
    main()
