"""What a server is for, where that changes how it prefills and caches."""

from __future__ import annotations

from runtime.server.architectures import EMBEDDING, ENCODED_ELSEWHERE, HRM_TEXT, UNCHUNKED
from runtime.server.attention import used_backends
from runtime.server.choices import Choices
from runtime.server.errors import ConfigError
from runtime.server.traits import is_multimodal

_ROLES = ("null", "prefill", "decode")
_SEEN = "HRM-Text's prompts, which see all of themselves"


def settle_role(c: Choices) -> None:
    role = c.disaggregation_mode
    if role not in _ROLES:
        raise ConfigError(f"--disaggregation-mode {role} is not known", f"one of {', '.join(_ROLES)}")
    if role == "decode":
        shared = c.disaggregation_decode_enable_radix_cache
        c.settle("a server that only decodes", disable_radix_cache=not shared)
    if c.language_only:
        _check_encoder(c)


def _check_encoder(c: Choices) -> None:
    if c.model.architecture not in ENCODED_ELSEWHERE:
        raise ConfigError(f"--language-only: {c.model.architecture} has no encoder that runs elsewhere")
    if not c.encoder_urls and not c.release.encoders_register:
        raise ConfigError("--language-only needs an encoder", "--encoder-urls")


def settle_item_scoring(c: Choices) -> None:
    if not c.enable_mis:
        return
    if set(used_backends(c)) != {"flashinfer"}:
        raise ConfigError(
            "--enable-mis scores on flashinfer only",
            tries=({"attention_backend": "flashinfer"}, "enable_mis"),
        )
    for graphs in (c.decode, c.prefill):
        c.disable(graphs, "--enable-mis")
    c.settle("--enable-mis", disable_radix_cache=True, chunked_prefill_size=-1)


def settle_unchunked(c: Choices) -> None:
    if c.release.knows_unchunked and c.model.architecture in UNCHUNKED and is_multimodal(c):
        c.settle("this model prefills whole", chunked_prefill_size=-1)
    if c.model.architecture in EMBEDDING:
        c.settle("an embedding model", chunked_prefill_size=-1)


def settle_seen_prompts(c: Choices) -> None:
    """HRM-Text's prompts see all of themselves: whole, on triton alone, where no prefix is kept.
    0.5.15 settles that in srt/model_executor/model_runner.py."""
    is_it = c.model.architecture == HRM_TEXT or c.model.model_type == "hrm_text"
    if not is_it or not c.model.get("prefix_lm", True):
        return
    c.settle(_SEEN, attention_backend="triton", chunked_prefill_size=-1, disable_radix_cache=True)
    if c.release.knows_unchunked:  # before, graphs are told apart by then, and captured
        for graphs in (c.decode, c.prefill):
            c.disable(graphs, _SEEN)
