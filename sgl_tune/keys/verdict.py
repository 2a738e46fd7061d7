"""Say in one line what a server's start tunes, as the first line of every answer about a plan."""

from collections.abc import Iterator
from dataclasses import replace

from runtime.flashinfer.versions import doubt_of, other_keys_of
from runtime.server.gpus import CPU
from sgl_tune.cache.asked import Gap, Verdict, told
from sgl_tune.deployment.deployment import Deployment
from sgl_tune.keys.calls import fp4_is_tuned, unknown_experts
from sgl_tune.keys.keys import skipped_ops
from sgl_tune.keys.plan import Plan

_NVFP4_GROUP = 16
_FP4_GEMMS = ("flashinfer_cutedsl", "flashinfer_cutlass", "flashinfer_cudnn")


def verdict_of(plan: Plan, is_proven: bool = False) -> Verdict:
    """Return a plan's verdict. `is_proven`: the installed FlashInfer has found all planned entries."""
    found, chosen = _verdict(plan), plan.deployment
    doubt = None if is_proven else doubt_of(chosen.inputs.flashinfer_version)
    if doubt:
        found = replace(found, tunes="unplanned", gaps=(*found.gaps, Gap("another FlashInfer", doubt)))
    return replace(found, says="; ".join(filter(None, [found.says, chosen.flags_not_followed, doubt])))


def _verdict(plan: Plan) -> Verdict:
    if plan.is_idle:
        return Verdict("nothing", f"tunes nothing: {_why_nothing(plan)}")
    gaps, obstacle = tuple(_gaps(plan)), cannot_tune(plan)
    untuned = f"; no warm can tune them here: {obstacle}" if obstacle else ""
    if not gaps:
        return Verdict("planned", f"tunes {told(plan.caches)}{untuned}", obstacle=obstacle)
    what = " and ".join(dict.fromkeys(gap.what for gap in gaps))
    why = "; ".join(dict.fromkeys(gap.why for gap in gaps))
    beside = f"; {told(plan.caches)} are planned" if plan.caches else ""
    said = f"tunes {what}, which cannot be planned: {why}{beside}{untuned}"
    return Verdict("unplanned", said, gaps, obstacle)


def _why_nothing(plan: Plan) -> str:
    server, skipped = plan.deployment.server, sorted(skipped_ops(plan.deployment))
    if not server.tuning.tunes:
        return server.tuning.because
    but = f" but for {', '.join(skipped)}, which it skips" if skipped else ""
    return f"the server's autotuner runs, and no layer of this model uses it{but}"


def _gaps(plan: Plan) -> Iterator[Gap]:
    other = other_keys_of(plan.deployment.inputs.flashinfer_version)
    if other:
        yield Gap("entries of another FlashInfer", other)
        return
    draft = plan.deployment.draft_deployment
    for deployment, whose in ((plan.deployment, "the"), (draft, "the draft's")):
        why = unknown_experts(deployment) if deployment else None
        if why is not None and (whose == "the" or plan.draft is not None):
            yield Gap(f"{whose} experts", f"the lookups of {why} are not known here")
    if plan.draft is not None and plan.draft.ops and not plan.target.ops:
        yield Gap(
            "a draft alone", "its cache is filled together with its target's, which has nothing to tune"
        )


def cannot_tune(plan: Plan) -> str | None:
    """Return why a warm of this plan would fail, or None if it would not or nothing is planned."""
    if not plan.caches:
        return None
    drafts = plan.deployment.draft_deployment if len(plan.caches) > 1 else None
    return next((why for one in (plan.deployment, drafts) if one for why in _obstacles(one)), None)


def _obstacles(deployment: Deployment) -> Iterator[str]:
    model, server = deployment.model, deployment.server
    backend, method = server.backend, deployment.quantization
    yield from model.gaps.obstacles
    if fp4_is_tuned(deployment) and server.runtime.kernels.fp4_gemm not in _FP4_GEMMS:
        yield f"this runtime has no nvfp4 GEMMs of {server.runtime.kernels.fp4_gemm}"
    if deployment.arch == CPU.arch or model.moe is None or backend.calls is None:
        return
    width, block = model.moe.intermediate_size // deployment.parallel.moe_tp, model.quantized.block
    if method == "fp8" and block and width % block[0]:
        yield f"this runtime splits fp8 experts by blocks of {block[0]}, and a rank's are {width} wide"
    if method == "modelopt_fp4" and width % _NVFP4_GROUP:
        yield f"this runtime splits nvfp4 experts by {_NVFP4_GROUP}, and a rank's are {width} wide"
    if backend.calls == "cutlass" and method not in (None, "modelopt_fp8"):
        yield f"this runtime calls {backend.name} plain and in modelopt_fp8, not in {method}"
    if backend.kernel_majors and server.gpu.major not in backend.kernel_majors:
        yield f"FlashInfer has no kernels of {backend.name} for {server.gpu.arch}"
    if backend.calls == "trtllm" and not model.style.gated:
        yield f"this runtime calls {backend.name} with gated experts alone"
    if not backend.kernels:
        yield f"this runtime has no kernels of {backend.name}"
