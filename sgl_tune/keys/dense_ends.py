"""Where the class of a dense family ends while SGLang makes it, or at its first forward."""

from __future__ import annotations

from collections.abc import Iterator
from itertools import chain
from typing import TYPE_CHECKING

from runtime.server.flags.spelling import flag_of, name_of
from runtime.server.unserved_when import lowers_packed
from sgl_tune.keys.expert_calls import checkpoint_of

if TYPE_CHECKING:
    from sgl_tune.deployment.deployment import Deployment

_GELU, _TIES = "gelu_pytorch_tanh", "tie_word_embeddings"
_CLIP, _MADE = "altup_coef_clip", ("fp8", "mxfp8", "w8a8_fp8")
_NO_PREFILLS = "disable_{}_cuda_graph"


def ends_of_dense(deployment: Deployment) -> Iterator[str]:
    return chain.from_iterable(rule(deployment) for rule in _RULES)


def _gemma_2(deployment: Deployment) -> Iterator[str]:
    """srt/models/gemma2.py asks for both fields; transformers' class has, and writes, but the other."""
    told = checkpoint_of(deployment).get("hidden_act")
    if deployment.model.model_type == "gemma2" and told != _GELU:
        is_told = "missing" if told is None else f"{told!r}"
        yield (
            f"hidden_act is {is_told}, and SGLang's Gemma 2 wants it beside hidden_activation: "
            f"""--json-model-override-args '{{"hidden_act": "{_GELU}"}}'"""
        )


def _blocks_apart(deployment: Deployment) -> Iterator[str]:
    """srt/models/nemotron_nas.py, and get_total_num_kv_heads of srt/configs/model_config.py"""
    model = deployment.model
    if model.model_type != "nemotron-nas":
        return
    counts = sorted({one.num_kv_heads for one in model.attention.values()})
    if len(counts) > 1:
        yield f"its layers have {' or '.join(map(str, counts))} KV heads: SGLang has one count for all"
    parts = zip(model.attention_kinds, model.layer_kinds, strict=True)
    first = next(one for one in parts if one != ("none", "none"))
    if first[0] == "none" and deployment.server.release.number < (0, 5, 22):
        yield "its first layer does not attend, and before 0.5.22 the norm of an MLP wants a residual"


def _gathered_keys(deployment: Deployment) -> Iterator[str]:
    """srt/models/olmo2.py norms the keys of all ranks as one, with as many weights as the model has keys."""
    model, ranks = deployment.model, deployment.parallel.attn_tp
    if not model.attention:
        return
    attention = model.main_attention
    if attention.qk_norm == "all, held whole" and ranks > attention.num_kv_heads:
        yield f"{attention.num_kv_heads} KV heads are fewer than {ranks} ranks, whose keys it gathers"


def _heads_of_all(deployment: Deployment) -> Iterator[str]:
    """srt/models/gpt2.py tells its attention of the KV heads that all ranks have, and makes a rank's."""
    if deployment.model.model_type == "gpt2" and deployment.parallel.tp > 1:
        yield "GPT-2's attention reads keys of all ranks' heads, and is given those of its own: --tp-size 1"


def _layers_of_others(deployment: Deployment) -> Iterator[str]:
    """srt/models/opt.py looks for the attention of every layer of a file."""
    reads = deployment.server.asked.load_format != "dummy"
    if checkpoint_of(deployment).architecture == "OPTForCausalLM" and deployment.parallel.pp > 1 and reads:
        yield "OPT's weights are read into layers that other stages have: --pp-size 1"


def _answers_by_heads(deployment: Deployment) -> Iterator[str]:
    """srt/models/gemma3n_causal.py hands on what srt/layers/radix_attention.py answers, as it is."""
    if deployment.model.model_type == "gemma3n_text" and deployment.server.prefill_graphs:
        yield (
            "where prefills are captured, Gemma 3n's attention answers by heads, and the matrix behind it "
            "takes whole rows: --disable-prefill-cuda-graph"
        )


def _lowered(deployment: Deployment) -> Iterator[str]:
    """srt/models/gemma3n_causal.py lowers the largest of its streams' coefficients in each forward: by a
    float, which torch does with floats alone, and with none in fp8."""
    model = deployment.model
    if model.model_type != "gemma3n_text" or checkpoint_of(deployment).text.get(_CLIP, 0) is None:
        return
    made = model.checkpoint_quantization is None and deployment.quantization in _MADE
    if made or lowers_packed(model, deployment.server):
        yield "SGLang's Gemma 3n lowers coefficients of its streams, and torch none that are quantized"


def _shared_keys(deployment: Deployment) -> Iterator[str]:
    """srt/models/nanbeige.py copies no head of keys."""
    if deployment.model.model_type != "nanbeige":
        return
    keys, ranks = deployment.model.main_attention.num_kv_heads, deployment.parallel.tp
    if keys % ranks:
        yield f"{keys} KV heads cannot be divided among {ranks} ranks, and Nanbeige's class copies none"


def _rounds_of_attention(deployment: Deployment) -> Iterator[str]:
    """srt/models/iquest_loopcoder.py has several in each layer, which srt/model_executor took for one."""
    server = deployment.server
    captures = server.release.number < (0, 5, 20) and server.prefill_graphs
    if deployment.model.model_type == "iquestloopcoder" and captures:
        way = "piecewise" if flag_of(server.release, _NO_PREFILLS.format("prefill")) is None else "prefill"
        yield (
            "where prefills are captured, SGLang before 0.5.20 looks for one attention in each layer, and "
            f"LoopCoder has one a round: {name_of(server.release, _NO_PREFILLS.format(way))}"
        )


def _untold_ties(deployment: Deployment) -> Iterator[str]:
    """srt/models/phi3_small.py asks a config for what neither its class nor transformers' has."""
    if deployment.model.model_type != "phi3small" or deployment.server.release.number >= (0, 5, 14):
        return
    if _TIES not in checkpoint_of(deployment).hf:
        yield (
            f"{_TIES} is missing, and before 0.5.14 SGLang's Phi 3 small asks for it: "
            f"""--json-model-override-args '{{"{_TIES}": true}}'"""
        )


_RULES = (
    *(_gemma_2, _blocks_apart, _gathered_keys, _heads_of_all, _layers_of_others, _shared_keys),
    *(_answers_by_heads, _lowered, _rounds_of_attention, _untold_ties),
)
