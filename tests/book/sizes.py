"""What a model's layers are stored in and take, and what a start of its server makes room for."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import fields
from typing import Any

from runtime.server import call_rules, channels, expert_weights, own_layer
from runtime.server.attention_buffers import backend_buffers, wrappers_each
from runtime.server.checkpoint import Checkpoint
from runtime.server.compressed_sizes import compressed_buffers
from runtime.server.config import ModelConfig
from runtime.server.errors import ConfigError
from runtime.server.formats.kinds import Kind, Served, format_of, format_of_experts
from runtime.server.formats.tensors import Format, Matrix
from runtime.server.graph_buffers import decode_graph_buffers, graph_sizes
from runtime.server.layer_kinds import layer_kind
from runtime.server.linears import LinearSize, linears
from runtime.server.own_draft import OwnDraft
from runtime.server.parallel import has_idle_head, node_ranks, rank_layout, stage_layers
from runtime.server.pool_plan import FreeMemory, PoolPlan, plan_pool
from runtime.server.rows import batch_rows
from runtime.server.sizing import kv_bytes_per_token, kv_heads_per_rank
from runtime.server.start_sizes import captured_sizes, start_sizes
from runtime.server.state_sizes import state_bytes
from runtime.server.windows import windows_of
from sgl_tune.deployment.deployment import Deployment
from sgl_tune.keys.dense_shapes import _spread, linear_sizes
from tests.book.plain import plain, told

_GIB = 1 << 30
_OF_WEIGHTS = ("is_mxfp8_modelopt", "has_int4_experts", "has_fp4_experts", "has_nvfp4_experts",
               "has_w4a16_experts", "is_block_fp8_of_32", "packs_mxfp4", "packs_nvfp4")  # fmt: skip


def model_of(checkpoint: Checkpoint) -> dict[str, Any]:
    """Its shape, and what rules look at beside it."""
    asked = ("dtype", "architecture", "model_type", "context_length", "context_length_from", "quantization",
             "has_attention_sinks", "has_wide_keys")  # fmt: skip
    found = {name: told(getattr, checkpoint, name) for name in asked}
    found["weights"] = [name for name in _OF_WEIGHTS if getattr(expert_weights, name)(checkpoint)]
    found["shape"] = told(_shape, checkpoint)
    return found


def _shape(checkpoint: Checkpoint) -> dict[str, Any]:
    model = checkpoint.model_config()
    found = {one.name: plain(getattr(model, one.name)) for one in fields(model)}
    some = sorted({0, 1, model.num_layers // 2, model.num_layers - 1} & {*range(model.num_layers)})
    found["kinds"] = [plain(layer_kind(model, layer)[2:]) for layer in some]
    found["head"] = plain(model.quantized.of_head())
    found["names of modules"] = [model.experts_name("m.mlp"), model.shared_name(f"m.{model.names.mlp}")]
    if model.recurrent is not None:
        found["state"] = [told(model.recurrent.state_shape, ranks) for ranks in (1, 2, 8)]
    return found


def sizes(deployment: Deployment, model: ModelConfig) -> dict[str, Any]:
    """Of a start that finds three quarters of the GPU free behind the weights."""
    server, parallel, runtime = deployment.server, deployment.parallel, deployment.runtime
    rows = batch_rows(server)
    found = {
        "rows": {"tuning": rows.tuning, "prefill": rows.prefill, "serving": rows.serving},
        "start": start_sizes(model, runtime, parallel.pp),
        "captured": [captured_sizes(count, parallel, runtime) for count in (1, 100)],
        "kv heads": kv_heads_per_rank(model.main_attention, parallel),
        "last rank": told(_rank, deployment, parallel.world_size - 1),
        "idle head": has_idle_head(model.model_type, model.tie_word_embeddings, server.release.number),
        "calls": told(_calls, deployment, model),
        "channels": told(_channels, deployment, model, rows.serving),
        "dense": told(linear_sizes, deployment, deployment.quantization or ""),
        "layers": [*_layers(deployment, model)],
        "pools": [told(_pool, deployment, model, stage) for stage in {0, parallel.pp - 1}],
    }
    if model.encoder is not None:
        found["encoder"] = told(_encoder, deployment, model)
    if runtime.deepep is not None and model.moe is not None:
        experts = model.moe.num_experts
        found["deepep"] = told(runtime.deepep.buffers, parallel.tp, model.hidden_size, experts)
    return plain(found)


def _rank(deployment: Deployment, rank: int) -> dict[str, Any]:
    layout = rank_layout(deployment.parallel, rank)
    groups = {name: [len(group), group[0]] for name, group in layout.groups.items()}
    return {"layout": layout, "groups": groups, "node": [*node_ranks(deployment.parallel)][:2]}


def _calls(deployment: Deployment, model: ModelConfig) -> dict[str, Any]:
    runtime, parallel = deployment.runtime, deployment.parallel
    return {
        "routing": [
            call_rules.routing_form(model, runtime, blocks, parallel.ep, parallel.attn_dp)
            for blocks in (False, True)
        ],
        "chooses": call_rules.chooses_itself(model),
        "loose": call_rules.has_loose_experts(model, deployment.quantization),
        "kernels route": call_rules.kernels_route(model),
        "fused": call_rules.fused_shared_experts(model, runtime, parallel.ep),
        "on each rank": call_rules.fuses_on_each_rank(model, runtime),
        "plain draft": own_layer.has_plain_layer(model, runtime),
        "draft layers": plain(own_layer.layer_of(model)),
    }


def _channels(deployment: Deployment, model: ModelConfig, rows: int) -> dict[str, Any]:
    runtime, parallel = deployment.runtime, deployment.parallel
    counts = (1, 2048, rows)
    return {
        "own": channels.own_groups(parallel),
        "torch": channels.groups_of_torch(model, parallel),
        "eager": [channels.eager_groups(model, parallel, runtime, count) for count in counts],
        "shared": channels.shared_buffer(parallel, runtime),
        "pointers": channels.shared_pointers(parallel, runtime),
        "messages": [
            channels.captured_messages(
                model, parallel, runtime, count, model.num_layers, is_prefill, has_head
            )
            for count in counts
            for is_prefill, has_head in ((True, False), (False, True))
        ],
    }


def _pool(deployment: Deployment, model: ModelConfig, stage: int) -> dict[str, Any]:
    runtime, parallel, server = deployment.runtime, deployment.parallel, deployment.server
    usable = server.gpu.usable_bytes
    layers, own = stage_layers(model.num_layers, parallel, stage), deployment.own_draft
    draft = int(server.speculative is not None) if isinstance(own, str) else own.counted_layers
    free = FreeMemory(usable - _GIB, usable * 3 // 4)
    found: dict[str, Any] = {"layers": [layers.start, layers.stop]}
    if own:
        found["own draft"] = own if isinstance(own, str) else _own(own)
    if model.recurrent is not None:
        found["state bytes"] = told(state_bytes, model, parallel, runtime)
    plan = plan_pool(
        free, runtime.mem_fraction_static, model, parallel, runtime, layers, draft, server.gpu.major
    )
    if plan.compressed is not None:
        held = list(compressed_buffers(plan.compressed, model, runtime, layers))
        return {**found, "plan": plan, "compressed": held}
    per_token = kv_bytes_per_token(
        model,
        parallel,
        plan.kv_dtype,
        layers,
        draft,
        plan.packed,
        runtime.sliding_share,
        plan.index_dtype,
    )
    return {**found, "plan": plan, "bytes": per_token, "buffers": [*_buffers(deployment, plan)]}


def _own(draft: OwnDraft) -> list[Any]:
    return [draft.captures, draft.counted_layers, draft.kv_dtype, draft.attention_backend, draft.parallel]


def _buffers(deployment: Deployment, plan: PoolPlan) -> Iterator[Any]:
    model, runtime = deployment.model, deployment.runtime
    ways, requests = wrappers_each(model.crosses, windows_of(model)), plan.max_running_requests
    graphs = captured_sizes(requests, deployment.parallel, runtime)
    told = requests, runtime.workspaces, ways, model.mla is not None
    yield from backend_buffers(runtime.attention_backend, *told)
    if graphs and model.attention:
        start = start_sizes(model, runtime, deployment.parallel.pp)
        place = deployment.parallel.attn_tp, plan.kv_dtype
        sizes = graph_sizes(model, runtime, start, plan, graphs, *place)
        yield from decode_graph_buffers(runtime.attention_backend, sizes)


def _encoder(deployment: Deployment, model: ModelConfig) -> list[Any]:
    assert model.encoder is not None
    ranks = {"tp": deployment.parallel.tp, "attn_tp": deployment.parallel.attn_tp}
    return [[one.name, one.of_rank(ranks[one.group]), one.layers] for one in model.encoder.weights]


def _layers(deployment: Deployment, model: ModelConfig) -> Iterator[Any]:
    """Of each matrix the sizes, and in its first and last layer its tensors and what becomes of them."""
    served = _served(deployment, model)
    for one in linears(model, deployment.parallel, _spread(deployment)):
        for layer in dict.fromkeys((one.layers[0], one.layers[-1])):
            yield [
                list(one.modules),
                one.k,
                one.n,
                layer,
                told(_linear, model, one, layer, served),
            ]
    if model.moe is None:
        return
    layers = [number for number, kind in enumerate(model.layer_kinds) if kind == "moe"]
    for layer in dict.fromkeys((layers[0], layers[-1])) if layers else ():
        name = model.experts_name(model.block_name(layer))
        yield [name, told(_experts, deployment, model, name, served)]


def _served(deployment: Deployment, model: ModelConfig) -> Served:
    server = deployment.server
    backend = deployment.runtime.served_by or server.moe_runner_backend
    return Served(server.gpu.major, backend, server.moe_a2a_backend, model.gated_mlps)


def _linear(model: ModelConfig, one: LinearSize, layer: int, served: Served) -> list[Any]:
    kind = model.quantized.of_linear([f"{model.layer_name(layer)}.{part}" for part in one.modules])
    parts = len(one.modules)
    matrix = Matrix((one.n // parts,) * parts, one.k, one.k, True)
    return [*_made(kind, format_of(kind, served), matrix)]


def _experts(deployment: Deployment, model: ModelConfig, name: str, served: Served) -> list[Any]:
    moe, parallel = model.moe, deployment.parallel
    assert moe is not None
    kind = model.quantized.of_experts(name)
    inner, hidden = moe.intermediate_size // parallel.moe_tp, moe.latent_size or model.hidden_size
    counts = moe.num_experts // parallel.moe_ep, moe.num_experts
    made = format_of_experts(kind, served, hidden, inner)
    ups = (inner,) * (2 if model.gated_mlps else 1)
    up = Matrix(ups, hidden, hidden, parallel.moe_tp > 1, *counts)
    down = Matrix((hidden,), inner, moe.intermediate_size, False, *counts, is_down=True)
    return [*_made(kind, made, up), *_made(kind, made, down)]


def _made(kind: Kind | None, made: Format, matrix: Matrix) -> Iterator[Any]:
    yield kind
    try:
        made.check(matrix)
    except ConfigError as error:
        yield error.message
    yield [[one.name, one.dtype, list(one.shape)] for one in made.tensors(matrix)]
    yield [
        [change.how, change.lists, one.name, one.dtype, list(one.shape)] for change, one in made.after(matrix)
    ]
