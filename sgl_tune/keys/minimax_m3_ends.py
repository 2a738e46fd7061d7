"""Where servers of MiniMax-M3 end: at their file, their drafts, and in releases that have no class of it.

srt/models/minimax_m3.py, minimax_m3_vl.py; before them srt/models/transformers.py, with transformers' class.
"""

from __future__ import annotations

from collections.abc import Iterator
from itertools import chain
from typing import TYPE_CHECKING

from runtime.server.choices import is_on
from runtime.server.families import MINIMAX3, MINIMAX_NVFP4
from runtime.server.minimax_nvfp4 import BLACKWELL
from runtime.server.resolve import BF16_ROUTER
from runtime.server.sizing import has_block_keys
from runtime.server.speculation import DRAFTLESS
from sgl_tune.keys.expert_calls import checkpoint_of

if TYPE_CHECKING:
    from sgl_tune.deployment.deployment import Deployment

_TEXT = "minimax_m3_vl_text"
_WHOLE = "MiniMaxM3SparseForConditionalGeneration"
_GIVES_ITS_HEAD = (0, 5, 18)  # the class around the text, to drafts that share it
_SHARES_A_HEAD = ("EAGLE", "EAGLE3")


def ends_of_minimax_m3(deployment: Deployment) -> Iterator[str]:
    if deployment.model.model_type != _TEXT:
        return
    rules = _sparse_section, _names_of_experts, _router, _verifies_blocks, _drafts
    yield from chain.from_iterable(rule(deployment) for rule in rules)


def _sparse_section(deployment: Deployment) -> Iterator[str]:
    """get_minimax_sparse_attention_config of srt/configs/model_config.py, of transformers' own class."""
    if checkpoint_of(deployment).model_type == _TEXT:
        yield (
            "model_type is minimax_m3_vl_text, whose class drops the sparse_attention_config that SGLang "
            "reads: in the text_config of a minimax_m3_vl it stays"
        )


def _names_of_experts(deployment: Deployment) -> Iterator[str]:
    """AutoWeightsLoader of srt/models/utils.py asks transformers' class for each name of a checkpoint."""
    server = deployment.server
    if not server.release.has_minimax_m3 and server.asked.load_format != "dummy":
        yield (
            f"SGLang {server.release.version} has no class of MiniMax-M3 and takes transformers', which has "
            "no block_sparse_moe, as its weights are called: SGLang 0.5.16"
        )


def _router(deployment: Deployment) -> Iterator[str]:
    """torch.mm of rows and a router in bfloat16."""
    server, in_bfloat16 = deployment.server, deployment.inputs.environ.get(BF16_ROUTER, "1")
    if server.release.has_minimax_m3 and server.dtype != "bfloat16" and is_on(in_bfloat16):
        yield f"--dtype {server.dtype}: MiniMax-M3's router multiplies in bfloat16 alone: {BF16_ROUTER}=0"


def _verifies_blocks(deployment: Deployment) -> Iterator[str]:
    """_resolve_extend_meta of srt/layers/attention/minimax_sparse_backend.py"""
    server = deployment.server
    if server.weights_quantization == MINIMAX_NVFP4 and server.gpu.major in BLACKWELL:
        return  # by attention of its own, which does
    drafted = server.speculative is not None and server.speculative.algorithm != "UNO"
    if has_block_keys(deployment.model) and drafted and server.decode_graphs:
        yield "MiniMax-M3 verifies no drafts on CUDA: its attention asks for lengths that a verify has not"


def _drafts(deployment: Deployment) -> Iterator[str]:
    """init_lm_head of srt/speculative/eagle_worker_v2.py asks both classes for what they share."""
    one, release = deployment.server.speculative, deployment.server.release
    if one is None or one.algorithm in DRAFTLESS or deployment.server.is_draft:
        return
    draft = deployment.inputs.draft_checkpoint or deployment.inputs.checkpoint
    if draft.architecture in MINIMAX3:
        yield (
            f"--speculative-algorithm {one.algorithm}: MiniMax-M3 has no layers that draft, "
            "and its class takes no embedding of another: --speculative-draft-model-path of a draft"
        )
    is_whole = checkpoint_of(deployment).architecture == _WHOLE
    if is_whole and one.algorithm in _SHARES_A_HEAD and release.number < _GIVES_ITS_HEAD:
        yield f"{_WHOLE} gives no draft its head before 0.5.18"
