"""Where a server keeps the encoder of a multimodal model."""

from __future__ import annotations

from typing import Literal

from runtime.server.choices import Choices
from runtime.server.encoders.weight import Encoder
from runtime.server.traits import is_multimodal

# Others have it although they serve text alone.
_ONLY_WHERE_USED = frozenset(("Llama4ForConditionalGeneration",))

EncoderPlace = Literal["nowhere", "split", "whole"]


def encoder_place(c: Choices) -> EncoderPlace:
    """--language-only leaves its weights unread, and makes room for them all the same."""
    if c.language_model_only or (c.model.architecture in _ONLY_WHERE_USED and not is_multimodal(c)):
        return "nowhere"
    return "whole" if c.mm_enable_dp_encoder else "split"


def placed(encoder: Encoder | None, place: EncoderPlace) -> Encoder | None:
    if encoder is None or place == "nowhere":
        return None
    return encoder.whole() if place == "whole" else encoder
