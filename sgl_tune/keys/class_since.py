"""Classes that end in SGLang's earlier releases, which have them."""

from __future__ import annotations

from collections.abc import Iterator, Mapping

from runtime.server.backends import Number

# srt/models/lightonocr.py and gemma3n_causal.py look for an angle that transformers keeps among
# rope_parameters; solar.py took its layers for three things, which make_layers does not give.
# srt/configs/model_config.py divides by heads until it knows models of states alone.
_SINCE: Mapping[str, tuple[Number, str]] = {
    "LightOnOCRForConditionalGeneration": (
        (0, 5, 14),
        "LightOnOCR does not find the rope_theta of its tower",
    ),
    **dict.fromkeys(
        ("Gemma3nForCausalLM", "Gemma3nForConditionalGeneration"),
        ((0, 5, 14), "Gemma 3n does not find its rope_local_base_freq"),
    ),
    "SolarForCausalLM": ((0, 5, 22), "Solar ends as it makes its layers"),
    **dict.fromkeys(
        ("MambaForCausalLM", "Mamba2ForCausalLM", "FalconMambaForCausalLM"),
        ((0, 5, 20), "model config asks for heads of attention, and there are none"),
    ),
}


def too_early(architecture: str, release: Number) -> Iterator[str]:
    if architecture in _SINCE:
        since, why = _SINCE[architecture]
        if release < since:
            yield f"before {'.'.join(map(str, since))} SGLang's {why}"
