"""What a release makes of --dllm-algorithm: srt/dllm, arg_groups/dllm_hook.py, before in server_args.py."""

from __future__ import annotations

from typing import NamedTuple


class BlockRules(NamedTuple):
    """`checks_algorithm`: by its arguments already; before, the name of none ends the first rank."""

    algorithms: tuple[str, ...] = ("LowConfidence", "JointThreshold")
    checks_algorithm: bool = False
    pages_without_prefixes: bool = False  # of a block, too, where no prefix is kept; and none is larger
    drops_stages: bool = False
    canvas_on: tuple[str, ...] = ("triton",)  # attention backends of Gemma4Renoise
    captures_canvas_prefills: bool = False  # whole ones
    in_single_tokens: frozenset[str] = frozenset()  # pages on fa4 of these: arg_groups/overrides.py
    checks_capacity: bool = False  # of experts, which is of the checkpoint's own blocks


BLOCKS_12 = BlockRules()
BLOCKS_15 = BLOCKS_12._replace(pages_without_prefixes=True, drops_stages=True)
BLOCKS_21 = BLOCKS_15._replace(
    algorithms=(*BLOCKS_15.algorithms, "Gemma4Renoise"),
    checks_algorithm=True,
)
BLOCKS_22 = BLOCKS_21._replace(
    algorithms=(*BLOCKS_21.algorithms, "JointThresholdInDel"),
    canvas_on=("triton", "fa4"),
    captures_canvas_prefills=True,
    in_single_tokens=frozenset({"DiffusionGemmaForBlockDiffusion"}),
    checks_capacity=True,
)
