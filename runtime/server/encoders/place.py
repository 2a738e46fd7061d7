"""Where a server keeps the encoder of a multimodal model."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Literal

from runtime.server.architectures import MUSE_SPARK
from runtime.server.backends import FIRST, Number
from runtime.server.choices import Choices
from runtime.server.encoders.weight import Encoder
from runtime.server.traits import is_multimodal

# Others have it although they serve text alone.
_ONLY_WHERE_USED = frozenset(("Llama4ForConditionalGeneration",))
# Before, every rank had all of it (srt/models/kimi_vl_moonvit.py).
_SPLIT_SINCE: Mapping[str, Number] = {"KimiVLForConditionalGeneration": (0, 5, 16)}

EncoderPlace = Literal["nowhere", "split", "whole"]


def encoder_place(c: Choices) -> EncoderPlace:
    """--language-only leaves its weights unread, and makes room for them, of all but Muse Spark's."""
    if c.language_only and c.model.architecture == MUSE_SPARK:
        return "nowhere"
    if c.language_model_only or (c.model.architecture in _ONLY_WHERE_USED and not is_multimodal(c)):
        return "nowhere"
    is_split = c.release.number >= _SPLIT_SINCE.get(c.model.architecture, FIRST)
    return "split" if is_split and not c.mm_enable_dp_encoder else "whole"


def placed(encoder: Encoder | None, place: EncoderPlace) -> Encoder | None:
    if encoder is None or place == "nowhere":
        return None
    return encoder.whole() if place == "whole" else encoder
