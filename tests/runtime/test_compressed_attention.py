"""DeepSeek-V4 over prompts so long that groups of 128 tokens are whole, in chunks and token by token."""

from __future__ import annotations

from pathlib import Path

import pytest
import torch

from runtime.forward.batch import make_decode_batch, make_extend_batch
from runtime.forward.comm import VirtualCommunicator
from runtime.forward.compressed_pool import CompressedPool, compressed_row
from runtime.forward.kv_pool import (
    KVPool,
    PoolShape,
    ReqToTokenPool,
    SlotAllocator,
)
from runtime.models.decoder import Decoder
from runtime.models.draft import DraftModel
from runtime.server.checkpoint import Checkpoint
from runtime.server.errors import Unsupported
from runtime.server.parallel_config import ParallelConfig
from sgl_tune.deployment.models import find_model
from tests.oracle.deepseek_v4 import FLASH
from tests.runtime.families import make_reference, prompts, reference_logits, save
from tests.runtime.generation import CPU, check_answers, make_runtime

LENGTH = 300


def _served(folder: Path) -> tuple[Decoder, KVPool]:
    model = find_model(str(folder), {}).checkpoint.model_config()
    layers = range(model.num_layers)
    decoder = Decoder(model, make_runtime(), VirtualCommunicator(ParallelConfig()), CPU, layers)
    decoder.load_hf(folder)
    shape = PoolShape(2 * LENGTH, 1, tuple(layers), torch.float32, CPU)
    cache = CompressedPool(shape, {layer: compressed_row(model, layer) for layer in layers})
    return decoder, KVPool(ReqToTokenPool(2, LENGTH, CPU), SlotAllocator(2 * LENGTH, CPU), cache)


def test_a_draft_over_several_streams_is_refused_by_name() -> None:
    model = Checkpoint({**FLASH, "num_hidden_layers": 1}).model_config()
    with pytest.raises(Unsupported, match="deepseek_v4 with drafts: how they mix its streams"):
        DraftModel(model, make_runtime(), VirtualCommunicator(ParallelConfig()), torch.device("meta"))


@pytest.mark.parametrize("ratios", [[0, 4, 128], [128, 4, 128]])
def test_chunks_and_single_tokens_are_as_the_whole_prompt(ratios: list[int], tmp_path: Path) -> None:
    reference = make_reference("deepseek_v4", compress_ratios=ratios, max_position_embeddings=512)
    decoder, pool = _served(save(reference, tmp_path))
    long, short = prompts(LENGTH, 140)
    want = [reference_logits(reference, text) for text in (long, short)]
    requests = pool.requests.allocate(2)
    ends = [(125, 3), (129, 127), (258, 128), (299, 139)]
    starts = [(0, 0), *ends]
    for start, end in zip(starts, ends, strict=False):
        parts = [text[a:b] for text, a, b in zip((long, short), start, end, strict=True)]
        check_answers(decoder, pool, make_extend_batch(parts, requests, pool, start), want, end)
    last = make_decode_batch([long[-1], short[-1]], requests, pool, ends[-1])
    check_answers(decoder, pool, last, want, (300, 140))
