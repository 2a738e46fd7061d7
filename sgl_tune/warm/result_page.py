"""The human output of a warm's result."""

from sgl_tune.cli.out import Output
from sgl_tune.deployment.deployment import Deployment
from sgl_tune.deployment.model_files import DEMO
from sgl_tune.recorded.plan import Whose
from sgl_tune.units import count
from sgl_tune.warm.proof import Forward, Proof
from sgl_tune.warm.result import WarmCache, Warmed


def show_warmed(out: Output, warmed: Warmed) -> None:
    stages = ", ".join(f"{name} {took:.1f} s" for name, took in warmed.seconds_by_stage.items())
    out.line(f"{warmed.plan.deployment.name}: {sum(warmed.seconds_by_stage.values()):.1f} s", style="bold")
    out.line(stages, indent=2)
    if warmed.peak_bytes:
        out.line(f"memory at most {warmed.peak_bytes / 2**30:.2f} GiB on the first device", indent=2)
    for cache in warmed.caches:
        _show_cache(out, warmed, cache)
    if warmed.is_proven:
        _show_next(out, warmed.plan.deployment)


def _show_cache(out: Output, warmed: Warmed, cache: WarmCache) -> None:
    folder = warmed.plan.deployment.cache_dir / cache.plan.folder
    out.line(f"{count(len(cache.plan.paths), 'rank file')} in {folder}", indent=2)
    out.line(f"{count(cache.written.entries, 'entry')}: {cache.tuned} tuned, {cache.reused} reused", indent=2)
    out.line(f"the same bytes in every file, sha256 {cache.written.digest[:16]}", indent=2)
    if cache.report.failed_tactics:
        out.line(f"{count(cache.report.failed_tactics, 'tactic')} failed and lost the race", indent=2)
    for failure in cache.report.failed:
        reason = next(iter(failure.reasons.values()), "no tactic fits")
        out.line(f"no tactic works for {failure.op} at bucket {failure.bucket}: {reason}", "red", indent=2)
    if cache.proof:
        _show_proof(out, cache.proof)
    if cache.tuned:
        out.line(f"every later start is spared this search: {cache.report.seconds:.1f} s here", indent=2)


def _show_next(out: Output, deployment: Deployment | Whose) -> None:
    if deployment.model_path == DEMO:
        out.line("so a server of this deployment would start without tuning; now for a real one:", indent=2)
        out.line("sgl-tune warm --dry-run --model-path MODEL --moe-runner-backend BACKEND --tp N", indent=4)
    else:
        out.line(
            f"so a server with SGLANG_CACHE_DIR={deployment.cache_dir} starts without tuning; sgl-tune verify"
            " says so of the machine that it starts on",
            indent=2,
        )


def _show_proof(out: Output, proof: Proof) -> None:
    if proof.is_good:
        out.line(
            f"proof: {proof.asked} lookups in a fresh process, no miss, nothing tuned, nothing compiled",
            "green",
            indent=2,
        )
    elif proof.misses or not proof.compiled_for_a_server:
        out.line(f"proof: {len(proof.misses)} entries are missing", "red", indent=2)
    for what in proof.compiled_for_a_server:
        out.line(f"proof: {what} was compiled: a server would have waited; it is there now", "red", indent=2)
    for what in proof.compiled["untuned"]:
        out.line(f"without the files {what} was compiled, which a server with them does not need", indent=2)
    if proof.uncaptured:
        out.line(f"no CUDA graph was captured: {proof.uncaptured}", "yellow", indent=2)
    for path in proof.ignored:
        out.line(f"FlashInfer's loader ignores {path}", "red", indent=4)
    for key in proof.misses:
        out.line(key, indent=4)
    _show_forward(out, proof.forward)


def _show_forward(out: Output, forward: Forward) -> None:
    times = f"{forward.tuned_ms:.2f} ms tuned, {forward.untuned_ms:.2f} ms untuned"
    if not forward.clear:
        said, style = f"no clear difference in {count(forward.turns, 'turn')} on this machine", None
    elif forward.gain < 1:
        said, style = f"{times}: {1 / forward.gain:.2f}x slower: prune it, warm on a quiet machine", "yellow"
    else:
        said, style = f"{times}: {forward.gain:.2f}x faster", None
    out.line(f"forward of {forward.rows} rows: {said}", style, indent=2)
