"""Weights of a checkpoint that SGLang's class reads into nothing, by names that it does not know."""

from __future__ import annotations

from collections.abc import Iterator

from runtime.server.checkpoint import Checkpoint
from runtime.server.expert_weights import packs_nvfp4_beside_mxfp8
from runtime.server.families import MINIMAX3
from runtime.server.shape import Server

_LOOP_CODER = "IQuestLoopCoderForCausalLM"


def drops(checkpoint: Checkpoint, server: Server) -> Iterator[str]:
    """For the line of a verdict."""
    if server.asked.load_format != "dummy":
        yield from _experts(checkpoint, server)
        yield from _gates(checkpoint, server)


def _experts(checkpoint: Checkpoint, server: Server) -> Iterator[str]:
    """load_weights of srt/models/minimax_m3.py, which goes on at a name that it does not know."""
    release = server.release
    reads = not release.has_minimax_m3 or release.serves_nvfp4_minimax
    if checkpoint.architecture in MINIMAX3 and not reads and packs_nvfp4_beside_mxfp8(checkpoint):
        yield (
            f"SGLang {release.version} reads none of its experts in nvfp4, by names that it does not know, "
            "and answers noise: SGLang 0.5.23"
        )


def _gates(checkpoint: Checkpoint, server: Server) -> Iterator[str]:
    """load_weights of srt/models/iquest_loopcoder.py, which looks for names without the model before them
    and takes a file's for those of MLPs."""
    if checkpoint.architecture == _LOOP_CODER:
        yield (
            f"SGLang {server.release.version} reads none of the gates of its rounds, by names that it does "
            "not know, and answers noise"
        )
