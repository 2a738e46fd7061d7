"""What a checkpoint calls its parts, beside the names that transformers loads."""

from __future__ import annotations

import pytest

from runtime.server.decoders.known import model_config
from runtime.server.tensor_names import within
from tests.runtime.families import FAMILIES, config_json, make_reference, tensors

# transformers builds it from the parts of others, under other names than its checkpoints have.
_RENAMED = {
    "nemotron_h",
    "step3p5",
    "minimax_m2",
    "mixtral",
    "mixtral_quant",
    "granitemoe",
    "granitemoehybrid",
}
_RENAMED |= {"granitemoeshared", "granitemoe_swa", "step3_text"}
_DENSE_GRANITE = {"num_local_experts": 0, "num_experts_per_tok": 0}


@pytest.mark.parametrize(
    ("family", "changes"),
    [*((name, {}) for name in FAMILIES if name not in _RENAMED), ("granitemoehybrid", _DENSE_GRANITE)],
)
def test_layers_and_their_halves_are_named_as_transformers_names_them(
    family: str, changes: dict[str, int]
) -> None:
    reference = make_reference(family, **changes)
    model = model_config(config_json(reference))
    theirs, names = [*tensors(reference)], model.names
    for i, (kind, mlp) in enumerate(zip(model.attention_kinds, model.layer_kinds, strict=True)):
        attends = [model.attention_name(kind)] * model.keeps_tokens(i)
        mixers = [names.recurrent] * model.is_recurrent(i) + attends
        for part in (*mixers, *[names.mlp] * (mlp != "none")):
            layer = f"{within(model.layer_name(i), part + model.half_name(i))}."
            assert any(name.startswith(layer) for name in theirs), (layer, mlp)
        if mlp == "moe":
            assert any(name.startswith(f"{model.block_name(i)}.") for name in theirs)
    assert f"{names.embedding}.weight" in theirs
    assert (f"{names.norm}.weight" in theirs) is (model.norms != "none" and not model.bare_norms)
