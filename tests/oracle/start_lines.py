"""Which release's wheel prints the lines that a start report reads, against the table's releases.

python -m tests.oracle.start_lines            # every release that is unpacked
python -m tests.oracle.start_lines --record   # what tests/sgl_tune/start_report/test_marks.py reads
"""

from __future__ import annotations

import argparse
import ast
import json
import re
import warnings
from collections.abc import Iterator
from pathlib import Path

from runtime.server.releases import RELEASES
from sgl_tune.start_report.marks import MARKS, Mark
from tests.oracle.wheels import WORK

RECORDED = Path(__file__).parent / "recorded/start_lines.json"
FOLDERS = ("srt", "kernels", "jit_kernel")
SAMPLES = (
    "server_args=ServerArgs(model_path='m', tp_size=1)",
    "max_total_num_tokens=669939, chunked_prefill_size=8192, max_prefill_tokens=16384, "
    "max_running_requests=2048, context_len=40960, available_gpu_mem=11.22 GB",
    "Engine startup timings (s): load_weight=12.02, kv_cache_allocation=0.02, scheduler_e2e=52.09,"
    " cuda_graph={prefill=22.96}, tokenizer_e2e=65.82",
    "Start of pd disaggregation warmup ...",
    "End of disaggregation warmup",
    "The server is fired up and ready to roll!",
    "Scheduler hit an exception: Traceback (most recent call last):",
    "Initialization failed. warmup error: Traceback (most recent call last):",
    "Received sigquit from a child process. It usually means the child failed.",
    "Init torch distributed begin.",
    "Init torch distributed ends. elapsed=0.52 s, mem usage=0.69 GB",
    "Init parallel begin.",
    "Init parallel ends. elapsed=0.52 s",
    "NCCL/RCCL warmup completed in 4.21s (tp_size=8, pp_size=1, ep_size=1)",
    "NCCL/RCCL/HCCL warmup completed in 4.21s (tp_size=8, pp_size=1, ep_size=1)",
    "Load weight begin. avail mem=139.11 GB",
    "Load weight end. elapsed=10.10 s, type=Qwen3MoeForCausalLM, avail mem=82.19 GB, mem usage=56.91 GB.",
    "KV Cache is allocated. dtype: torch.bfloat16, #tokens: 669939, K size: 30.67 GB, V size: 30.67 GB",
    "KV Cache is allocated. #tokens: 669939, K size: 30.67 GB, V size: 30.67 GB",
    "Mamba Cache is allocated. max_mamba_cache_size: 64, conv_state size: 0.07GB, ssm_state size: 3GB ",
    "Memory pool end. avail mem=20.09 GB",
    "Post-capture KV sizing: KV cache allocated. dtype: x, #tokens: 5, KV size: 1.00 GB, avail mem=8.00 GB",
    "Running FlashInfer autotune with cache: /c/rank_tp0_pp0_dp0.json",
    "Running FlashInfer autotune (cache reuse DISABLED via SGLANG_FLASHINFER_AUTOTUNE_CACHE=0); writing fresh"
    " result to: /c/runs/x.json",
    "FlashInfer autotune completed.",
    "FlashInfer autotune: per-rank caches disagree, discarding them and tuning from scratch so all ranks "
    "agree on the tactics.",
    "FlashInfer extend autotune skipped: not enough free memory for a 8192-token dummy forward.",
    "Rebuilding JIT module norm: source changed",
    "JIT resource usage for norm:\n12 registers",
    "Cached JIT module norm failed to load; rebuilding. Got error: no symbol",
    "Try DeepGEMM JIT Compiling for <GEMM_NT_F8F8BF16> N=4096, K=4096, num_groups=1 with all Ms.",
    "Required memory for warmup: 0.0712890625GB, Available memory: 33.6GB",
    "Compiling a graph for dynamic shape takes 0.23 s",
    "DeepSeek V4 MHC prenorm prewarm at load: compile 3.1s, rank sync +0.2s",
    "DeepSeek V4 MHC prewarm at load: compile 3.1s, rank sync +0.2s",
    "Capture cuda graph begin. This can take up to several minutes. avail mem=13.95 GB",
    "Capture cuda graph end. Time elapsed: 11.35 s. mem usage=1.04 GB. avail mem=11.22 GB.",
    "Capture piecewise CUDA graph begin. avail mem=23.54 GB",
    "Capture piecewise CUDA graph end. Time elapsed: 17.62 s. mem usage=2.32 GB. avail mem=21.22 GB.",
    "Capture target prefill CUDA graph begin. backend=breakable, num_tokens=[4, 8], avail mem=12.59 GB",
    "Capture target prefill CUDA graph end. elapsed=22.96 s, mem usage=1.71 GB, avail mem=10.88 GB.",
    "Capture target decode CUDA graph begin. backend=full, num_tokens_per_req=1, bs=[1], avail mem=10.88 GB",
    "Capture target decode CUDA graph begin. backend=full, num_tokens_per_bs=1, bs=[1], avail mem=10.88 GB",
    "Capture target decode CUDA graph end. elapsed=12.26 s, mem usage=0.34 GB, avail mem=10.54 GB.",
    "Capture draft cuda graph begin. This can take up to several minutes. avail mem=13.95 GB",
    "Capture draft extend CUDA graph begin. backend=full, num_tokens_per_req=4, bs=[1], avail mem=7.01 GB",
    "Capture draft extend CUDA graph begin. backend=full, num_tokens_per_bs=4, bs=[1], avail mem=7.01 GB",
    "Capture draft extend CUDA graph end. elapsed=0.74 s, mem usage=0.14 GB, avail mem=6.87 GB.",
    "Capture draft cuda graph end. Time elapsed: 1.35 s. mem usage=1.04 GB. avail mem=11.22 GB.",
    "Capture draft extend cuda graph begin. This can take up to several minutes. avail mem=7.01 GB",
)  # fmt: skip


def of_sglang(mark: Mark) -> bool:
    return mark.where.startswith(("srt/", "kernels/"))


def mark_of(line: str) -> Mark:
    return next(mark for mark in MARKS if mark.pattern.match(line))


def printed(release: str) -> list[str]:
    """The samples that this release's source may print."""
    templates = list(_templates(WORK / "unpacked" / release / "sglang"))
    return [line for line in SAMPLES if any(template.match(line) for template in templates)]


def _templates(root: Path) -> Iterator[re.Pattern[str]]:
    heads = {line[:6] for line in SAMPLES}
    for folder in FOLDERS:
        for path in (root / folder).rglob("*.py"):
            text = path.read_text(encoding="utf-8", errors="replace")
            if not any(head in text for head in heads) and "server_args=" not in text:
                continue
            with warnings.catch_warnings():
                warnings.simplefilter("ignore")
                tree = ast.parse(text)
            for node in ast.walk(tree):
                if isinstance(node, ast.Call):
                    yield from _of_call(node, heads)


def _of_call(node: ast.Call, heads: set[str]) -> Iterator[re.Pattern[str]]:
    for argument in node.args[:3]:
        text = _text(argument)
        if text and (
            any(text.startswith(head[:4]) for head in heads) or text.startswith(("\0 is ", "\0 \0. dtype"))
        ):
            pattern = re.escape(text).replace("\0", ".*?")
            yield re.compile(re.sub(r"%(?:\\?\.\d)?[sdf]", ".*?", pattern), re.DOTALL)


def _text(node: ast.AST) -> str | None:
    """A message as it is written down, with a NUL for what is put in."""
    if isinstance(node, ast.Constant):
        return node.value if isinstance(node.value, str) else None
    if isinstance(node, ast.JoinedStr):
        return "".join(_text(part) or "\0" for part in node.values)
    if isinstance(node, ast.BinOp) and isinstance(node.op, ast.Add):
        return (_text(node.left) or "\0") + (_text(node.right) or "\0")
    return None


def main() -> None:
    options = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    options.add_argument("--record", action="store_true")
    asked = options.parse_args()
    found = {row.version: printed(row.version) for row in RELEASES}
    for release, lines in found.items():
        print(f"{release}: {len(lines)} of {len(SAMPLES)} lines")
    if asked.record:
        numbers = {release: [SAMPLES.index(line) for line in lines] for release, lines in found.items()}
        RECORDED.write_text(json.dumps(numbers) + "\n")


if __name__ == "__main__":
    main()
