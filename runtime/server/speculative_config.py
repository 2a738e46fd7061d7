"""How drafts are made, resolved: data, no torch."""

from __future__ import annotations

from dataclasses import dataclass

from runtime.server.bounds import SPECULATIVE, check_flags

_OF_WORDS_ALONE = ("NGRAM", "STANDALONE", "UNO")


@dataclass(frozen=True, slots=True)
class SpeculativeConfig:
    algorithm: str
    num_steps: int = 3
    eagle_topk: int = 1
    num_draft_tokens: int = 4
    multi_layer: bool = False
    is_counted: bool = True  # its layers' keys and values, when the pool is sized
    kv_cache_dtype: str | None = None  # None: its target's
    plain: bool = False  # where a flag quantizes its target
    steps_by: str = ""  # the attention of its steps
    catches_up_by: str = ""  # ... and of its catching up: any is captured where none is told
    without_overlap: bool = False  # of the worker that there was before 0.5.13, which captures any, too

    @property
    def shows_rows(self) -> bool:
        """Of what its layers make, a target to its draft: get_spec_info of srt/model_executor/runner."""
        return self.algorithm not in _OF_WORDS_ALONE

    def __post_init__(self) -> None:
        check_flags(self, SPECULATIVE)
