"""Published checkpoints: the bytes of their tensors as we predict them, beside what is stated of their files.

Of those that nobody states, the parameters, beside transformers' own on tensors without memory.

python -m tests.memory.published [--model NAME]
"""

from __future__ import annotations

import argparse
import json
from collections.abc import Iterator
from dataclasses import dataclass, replace
from typing import Any

import torch
from huggingface_hub.errors import StrictDataclassError
from transformers import CONFIG_MAPPING

from runtime.forward.comm import VirtualCommunicator
from runtime.layers.linear import Linear
from runtime.models.decoder import Decoder
from runtime.models.draft import DraftModel
from runtime.models.experts import Experts
from runtime.server.checkpoint import Checkpoint
from runtime.server.config import ModelConfig, RuntimeConfig
from runtime.server.decoders.wrappers import text_part, wrapper_of
from runtime.server.errors import ConfigError, Unsupported
from runtime.server.formats.assigned import UNQUANTIZED
from runtime.server.parallel_config import ParallelConfig
from tests.memory.checkpoints import DATA, checkpoints
from tests.oracle.published import Published
from tests.runtime.classless import of_text

META = torch.device("meta")
WITHIN = 0.005
# Their class is DeepSeek-V3's, in a file of the checkpoint.
CLASSES = dict.fromkeys(("kimi_k2", "dots_vlm_text", "deepseek_vl2_text"), "deepseek_v3")
INSIDE = {
    "step3p5": "step3p7", "glm5_next_text": "glm5_next", "ernie4_5_vl_moe_text": "ernie4_5_vl_moe",
}  # fmt: skip
# A params.json's text: transformers has it under another name, and no other rope of SGLang's.
NAMED_APART = {"pixtral": {"model_type": "mistral4", "rope_scaling": None}}
# Whose model_type transformers has for Ling 3, for captions, for a whole Llama; whose files leave out sizes
# that it fills in otherwise.
OF_ANOTHER = (
    *("BailingMoeV2_5ForCausalLM", "Grok1ForCausalLM", "Grok1ModelForCausalLM", "LlamaForCausalLMEagle3"),
    "Dots3NoteForCausalLM",
)


@dataclass(frozen=True, slots=True)
class Beside:
    """`ours` and `theirs` are bytes where a source states them, else parameters; `theirs` is 0 where nobody
    says, and `why` tells. `file_bytes` are predicted."""

    model: str
    unit: str
    ours: int
    theirs: int
    why: str
    file_bytes: int = 0

    @property
    def off(self) -> float:
        return self.ours / self.theirs - 1 if self.theirs else float("nan")

    @property
    def is_close(self) -> bool:
        return abs(self.off) <= WITHIN


def stated() -> dict[str, dict[str, Any]]:
    found: dict[str, dict[str, Any]] = json.loads((DATA / "published_sizes.json").read_text())
    return found


def beside_its_files(one: Published) -> Beside:
    """Every tensor of the checkpoint, its draft layers' with their own tables where it has some."""
    fact = stated()[one.name]
    model = _model(one)
    total = file_bytes(_decoder(model))
    if fact.get("drafts"):
        draft = DraftModel(model, RuntimeConfig(), VirtualCommunicator(ParallelConfig()), META)
        total += file_bytes(draft)
    return Beside(one.name, "bytes", total, fact["bytes"], fact["source"], total)


def beside_transformers(one: Published) -> Beside:
    """Of the same model without its quantization, whose kinds of matrices are known by themselves."""
    try:
        model = _model(one)
        stored = file_bytes(_decoder(model)) + 2 * of_the_host(model)
        plain = replace(model, quantized=UNQUANTIZED, checkpoint_quantization=None, quantization_block=None)
        ours = sum(one.numel() for one in _of_a_file(_decoder(plain))) - of_unread_keys(model)
        theirs = _parameters(one.config) - of_zero_experts(model) - of_the_host(model)
    except (ConfigError, Unsupported) as error:
        return Beside(one.name, "parameters", 0, 0, error.message)
    except (ValueError, KeyError, AttributeError, TypeError, StrictDataclassError) as error:
        return Beside(one.name, "parameters", 0, 0, f"transformers: {str(error)[:80]}")
    return Beside(one.name, "parameters", ours, theirs, "transformers, on meta tensors", stored)


def file_bytes(module: torch.nn.Module) -> int:
    """Of what a file has, not of the room that a server makes beside it."""
    own = sum(parameter.nbytes for parameter in _of_a_file(module))
    return own - sum(tensor.nbytes for tensor in _rooms(module))


def of_zero_experts(model: ModelConfig) -> int:
    """Gates and ups that transformers' class makes for them, and nobody reads."""
    moe = model.moe
    if moe is None or not moe.zero_experts or moe.router_width:
        return 0
    return model.num_moe_layers * moe.zero_experts * 2 * moe.intermediate_size * model.hidden_size


def of_the_host(model: ModelConfig) -> int:
    """Tables of n-grams, which a server keeps in its memory."""
    found = model.ngrams
    return 0 if found is None else sum(found.rows(layer) * found.row for layer in found.layers)


def of_unread_keys(model: ModelConfig) -> int:
    """Of layers that read another's, and have none for transformers: SGLang makes them all the same."""
    total = 0
    for layer in range(model.num_layers):
        if model.key_layer(layer) != layer:
            one = model.layer_attention(layer)
            matrices = 1 if one.keys_are_values else 2  # one is a room already
            total += one.head_dim + matrices * one.num_kv_heads * one.head_dim * model.hidden_size
    return total


def _of_a_file(module: torch.nn.Module) -> Iterator[torch.nn.Parameter]:
    """A tied head is there once, also where a server has it twice."""
    is_twice = isinstance(module, Decoder) and module.model.holds_head and module.model.tie_word_embeddings
    for name, parameter in module.named_parameters():
        if not (is_twice and name.startswith("head.")):
            yield parameter


def _rooms(module: torch.nn.Module) -> Iterator[torch.Tensor]:
    """A draft has been laid out already: there are none in it."""
    for part in module.modules():
        if isinstance(part, Linear):
            for one in part.scheme.format.linear:
                if not one.in_file and one.name in part.tensors:
                    yield part.tensors[one.name]
        elif isinstance(part, Experts):
            for one in part.scheme.format.experts:
                if not one.in_file:
                    yield from (side[one.name] for side in (part.up, part.down) if one.name in side)


def _model(one: Published) -> ModelConfig:
    return Checkpoint(one.config, one.modelopt_file or {}).model_config()


def _decoder(model: ModelConfig) -> Decoder:
    layers = range(model.num_layers)
    return Decoder(model, RuntimeConfig(), VirtualCommunicator(ParallelConfig()), META, layers)


def _parameters(config: dict[str, Any]) -> int:
    """With the routers' corrections, which transformers keeps in buffers."""
    if config.get("architectures", [""])[0] in OF_ANOTHER:
        raise ValueError(f"its {config['model_type']} is another model")
    wrapper = wrapper_of(config)
    is_known = config["model_type"] in CONFIG_MAPPING and config["model_type"] not in INSIDE.values()
    is_known &= wrapper is None or not wrapper.reads_another  # whose file is another model's by its name
    apart = NAMED_APART.get(config["model_type"])
    text = config if wrapper is None or (is_known and not apart) else text_part(wrapper, config)
    text = {**text, **(apart or {})}
    plain = {name: value for name, value in text.items() if name not in ("quantization_config", "auto_map")}
    parts = _transformers(plain.pop("model_type"), plain)
    corrections = (
        buffer.numel()
        for part in parts
        for name, buffer in part.named_buffers()
        if "correction_bias" in name or "expert_bias" in name
    )
    return sum(parameter.numel() for part in parts for parameter in part.parameters()) + sum(corrections)


def _transformers(model_type: str, sizes: dict[str, Any]) -> list[Any]:
    """The language model, which may have a class inside of another alone."""
    from transformers import AutoConfig, AutoModelForImageTextToText

    if model_type in INSIDE:
        sizes, ties = _one_for_both(sizes), sizes.get("tie_word_embeddings", False)
        whole = AutoConfig.for_model(INSIDE[model_type], text_config=sizes, tie_word_embeddings=ties)
        with META:
            model = AutoModelForImageTextToText.from_config(whole)
        return [model.model.language_model, *(() if ties else (model.lm_head,))]
    found = AutoConfig.for_model(CLASSES.get(model_type, model_type), **sizes)
    with META:
        return [of_text(found.get_text_config())]


def _one_for_both(sizes: dict[str, Any]) -> dict[str, Any]:
    """transformers' ERNIE 4.5 VL has one count of experts, and names its layers."""
    told, first = sizes.get("moe_num_experts"), sizes.get("moe_layer_start_index")
    if not isinstance(told, list) or first is None:
        return sizes
    kinds = ["sparse" if layer >= min(first) else "dense" for layer in range(sizes["num_hidden_layers"])]
    return {**sizes, "moe_num_experts": told[0], "mlp_layer_types": kinds}


def main() -> None:
    options = argparse.ArgumentParser(prog="python -m tests.memory.published")
    options.add_argument("--model", help="those whose name has this in it", default="")
    wanted = options.parse_args().model
    known, close, asked = stated(), 0, 0
    for one in checkpoints():
        if wanted not in one.name:
            continue
        told = beside_its_files(one) if one.name in known else beside_transformers(one)
        close, asked = close + told.is_close, asked + 1
        off = f"{told.off:+.4%}" if told.theirs else "unknown"
        sizes = f"{told.file_bytes / 1e9:8.2f} GB {told.unit:10s} {told.ours:14d} {told.theirs:14d}"
        print(f"{one.name:52s} {sizes} {off:>9s}  {told.why}", flush=True)
    print(f"{close} of {asked} within {WITHIN:.1%}")


if __name__ == "__main__":
    main()
