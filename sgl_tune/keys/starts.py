"""Servers whose arguments SGLang takes, and that end while they load or tune."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from itertools import chain
from typing import TYPE_CHECKING

from runtime.server.choices import is_on
from runtime.server.diffusion import BLOCKS
from runtime.server.embedders import BY_FLAG, is_embedder, takes_embedding
from runtime.server.encoders.place import placed
from runtime.server.errors import ConfigError
from runtime.server.gpus import CPU
from runtime.server.resolve import LONGER_CONTEXT
from sgl_tune.deployment.refusals import undivided_heads
from sgl_tune.keys.class_ends import ends_of_class
from sgl_tune.keys.draft_ends import ends_of_drafts, ends_of_shown_layers
from sgl_tune.keys.expert_calls import checkpoint_of
from sgl_tune.keys.graph_ends import ends_of_graphs
from sgl_tune.keys.inkling_ends import ends_of_inkling
from sgl_tune.keys.kernel_ends import ends_of_kernels
from sgl_tune.keys.llava_ends import ends_of_yi_vl
from sgl_tune.keys.minicpmo_ends import ends_of_minicpmo
from sgl_tune.keys.muse_spark_ends import ends_of_muse_spark
from sgl_tune.keys.offloading_ends import ends_of_offloading
from sgl_tune.keys.transformers_ends import ends_of_transformers, has_transformers_layers

if TYPE_CHECKING:
    from sgl_tune.deployment.deployment import Deployment


def server_ends(deployment: Deployment) -> str | None:
    """Why its server does not start: the target, or its draft."""
    draft = deployment.draft_deployment
    of_draft = never_starts(draft) if draft is not None else None
    return never_starts(deployment) or (of_draft and f"its draft: {of_draft}")


def never_starts(deployment: Deployment) -> str | None:
    """Why; None of one that may."""
    if deployment.arch == CPU.arch:
        return None
    return _ends(deployment) or next(ends_of_shown_layers(deployment), None)


def _ends(deployment: Deployment) -> str | None:
    deployment = replace(deployment, shape=deployment.shape.as_read)
    heads = undivided_heads(deployment.server.asked, checkpoint_of(deployment))
    if has_transformers_layers(deployment):
        of_layers = next(chain(_nameless(deployment), heads, ends_of_transformers(deployment)), None)
        if of_layers or deployment.shape.model is None or not deployment.model.by_transformers:
            return of_layers
    of_rows = _generates_alone(deployment)
    if deployment.shape.model is None:
        of_file = ends_of_muse_spark(deployment), ends_of_inkling(deployment), ends_of_yi_vl(deployment)
        return next(chain(of_rows, *of_file, ends_of_minicpmo(deployment)), None)
    parts = _nameless(deployment), _undivided_encoder(deployment), _short_draft(deployment)
    of_blocks, of_pool = _unwritten(deployment), _keeps_nothing(deployment)
    of_drafts = chain(ends_of_drafts(deployment), ends_of_offloading(deployment))
    first = heads, ends_of_muse_spark(deployment), ends_of_inkling(deployment)
    of_class = ends_of_class(deployment), ends_of_kernels(deployment), ends_of_graphs(deployment)
    return next(chain(*first, *parts, of_drafts, of_blocks, of_rows, of_pool, *of_class), None)


def _nameless(deployment: Deployment) -> Iterator[str]:
    """srt/configs/model_config.py, in every release."""
    if not checkpoint_of(deployment).architecture:
        yield "config.json: architectures names no class, and SGLang asks for the first"


def _unwritten(deployment: Deployment) -> Iterator[str]:
    """srt/managers/tp_worker.py asks for the algorithm, and srt/dllm/config.py for the model's blocks."""
    server, algorithm = deployment.server, deployment.server.asked.dllm_algorithm
    if algorithm is None:
        return
    version, known = server.release.version, server.release.blocks.algorithms
    architecture = checkpoint_of(deployment).architecture
    if algorithm not in known:
        yield f"--dllm-algorithm {algorithm}: SGLang {version} has {', '.join(known)}"
    if architecture not in BLOCKS and not server.release.blocks.checks_algorithm:
        yield f"--dllm-algorithm: SGLang {version} writes no blocks of {architecture}"


def _generates_alone(deployment: Deployment) -> Iterator[str]:
    """srt/model_executor tells each forward of a server that embeds to do so."""
    architecture, release = checkpoint_of(deployment).architecture, deployment.server.release
    embeds = deployment.server.asked.is_embedding and not deployment.server.is_draft
    if architecture in BY_FLAG and not deployment.server.asked.is_embedding:
        yield f"{architecture} answers rows, and SGLang asks it for logits: --is-embedding"
    if embeds and not is_embedder(architecture) and not takes_embedding(architecture, release.number):
        yield f"--is-embedding: the forward of SGLang {release.version}'s {architecture} knows no embedding"


def _keeps_nothing(deployment: Deployment) -> Iterator[str]:
    """NoOpMHATokenToKVPool of srt/mem_cache/memory_pool.py raises where a backend writes to it. Before 0.5.19
    EmbeddingGemma has one by what the flags ask for, whatever becomes of them."""
    server = deployment.server
    backend = server.prefill_attention_backend
    if server.keeps_nothing and backend not in ("fa3", "fa4"):
        yield (
            f"SGLang {server.release.version}'s EmbeddingGemma keeps no tokens, and {backend} writes them: "
            f"--attention-backend {backend} in so many words, or fa4"
        )


def _undivided_encoder(deployment: Deployment) -> Iterator[str]:
    encoder, layout = placed(deployment.model.encoder, deployment.server.encoder), deployment.parallel
    ranks = {"tp": layout.tp, "attn_tp": layout.attn_tp}
    try:
        for weight in () if encoder is None else encoder.weights:
            weight.of_rank(ranks[weight.group])
    except ConfigError as error:
        yield error.message


def _short_draft(deployment: Deployment) -> Iterator[str]:
    """srt/configs/model_config.py: a draft is loaded with the context of its target."""
    draft, server, environ = deployment.inputs.draft_checkpoint, deployment.server, deployment.inputs.environ
    if draft is None or server.draft is None or is_on(environ.get(LONGER_CONTEXT)):
        return
    if server.context_length > draft.context_length:
        yield (
            f"its draft has {draft.context_length} positions, and the context is of {server.context_length}: "
            f"--context-length {draft.context_length}, or {LONGER_CONTEXT}=1"
        )
