"""Every architecture that a rule names is one that SGLang's wheels are asked about."""

from __future__ import annotations

import importlib
import pkgutil
import re
from collections.abc import Iterator, Mapping
from types import CodeType, FunctionType, ModuleType
from typing import Any

from runtime import server
from runtime.server.releases import RELEASES
from tests.oracle.published import published

ASKED = {name for one in published().values() for name in one.config.get("architectures", ())}
_IS_ONE = re.compile(r"[A-Z]\w*[a-z]\w*(For[A-Z]\w+|Model|ModelNextN|NextN|MTP|Eagle3?)_?")
# Drafts, an ending, a key of auto_map, some whose checkpoints nobody lists, and one that a release settles
# behind its arguments.
_UNASKED = {
    *("Gemma4AssistantForCausalLM", "Gemma4UnifiedAssistantForCausalLM", "LMHeadModel"),
    *("Qwen2MoeForCausalLM", "Cosmos3ForConditionalGeneration", "LongcatFlashNgramForCausalLM"),
    *("InternLM2ForCausalLM", "Olmo3ForCausalLM", "MistralForCausalLM", "MistralForCausalLMEagle"),
    *("LlamaForCausalLMEagle", "Qwen2ForCausalLMEagle", "DFlashDraftModel"),
    *("Grok1ModelForCausalLM", "XverseMoeForCausalLM", "QuantMixtralForCausalLM"),
    *("MiMoForCausalLM", "HrmTextForCausalLM", "Gemma3TextModel", "MiniCPMSALAForCausalLM"),
    *("AutoModel", "DeepseekOCR2ForCausalLM", "DeepseekVLV2ForCausalLM"),
}
_WRITTEN_BY_A_TOOL = {"class_table"}
_NOT_ASKED_ABOUT = {
    *(
        "served_classes",
        "packed",
        "embedders",
        "scores",
        "as_transformers",
    )  # of every family, whose own tests ask
}


def _modules() -> Iterator[ModuleType]:
    for found in pkgutil.walk_packages(server.__path__, "runtime.server."):
        last = found.name.rpartition(".")[2]
        if not last.startswith("v0_") and last not in _WRITTEN_BY_A_TOOL | _NOT_ASKED_ABOUT:
            yield importlib.import_module(found.name)


def _strings(value: Any, depth: int = 0) -> Iterator[str]:
    if isinstance(value, str):
        yield value
    elif isinstance(value, FunctionType):
        yield from _strings(value.__code__, depth)
    elif isinstance(value, CodeType):
        for one in value.co_consts:
            yield from _strings(one, depth)
    elif isinstance(value, Mapping) and depth < 4:
        for pair in value.items():
            yield from _strings(pair, depth + 1)
    elif isinstance(value, (tuple, list, set, frozenset)) and depth < 4:
        for one in value:
            yield from _strings(one, depth + 1)


def _named() -> Iterator[str]:
    for module in _modules():
        for name, value in vars(module).items():
            if not name.startswith("__"):
                yield from _strings(value)
    for row in RELEASES:
        for name in row._fields:
            yield from _strings(getattr(row, name))


def test_no_rule_names_an_architecture_that_nobody_is_asked_about() -> None:
    unknown = {name for name in _named() if _IS_ONE.fullmatch(name) and name not in ASKED}
    assert unknown == _UNASKED
