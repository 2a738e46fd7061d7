"""One layer's parts by their sizes: attention, its rope, experts. Data, no torch."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any, Literal

from runtime.server.bounds import check_model

# Where a layer norms, and by which names
NormStyle = Literal[
    "before", "around", "sandwich", "after", "alone", "operator", "attention", "feed", "parallel", "joined",
    "paired", "flanked", "named", "numbered", "nested", "entered", "enclosed", "scaled", "counted", "gated",
    "short", "final", "behind", "apart", "beside", "none", "late",
]  # fmt: skip


@dataclass(frozen=True, slots=True)
class MoEConfig:
    num_experts: int
    top_k: int
    intermediate_size: int
    shared_intermediate_size: int = 0
    scoring: Literal["softmax", "sigmoid", "sqrtsoftplus", "near best"] = "softmax"
    renormalize: bool = True
    least_sum: float = 1e-20  # added to what shares are divided by
    correction_bias: bool = False
    correction_in_fp32: bool = True  # or as the model is
    num_groups: int = 1
    top_k_groups: int = 1
    group_worth: Literal[1, 2] = 2  # of how many of its best experts a group's worth is the sum
    from_each_group: bool = False  # as many experts, whatever the groups are worth
    routed_scaling_factor: float = 1.0
    router_bias: bool = False
    router_in_fp32: bool = False
    router_multiplier: float = 1.0  # what it finds counts so much
    router_cap: float | None = None  # what it finds is a tanh of itself, so high
    routes_in_fp32: bool = False  # by a router that is stored as the model is
    latent_size: int | None = None  # of the rows that routed experts work on, where not the hidden size
    sums_latents: bool = False  # over ranks, before they are as wide as rows again
    norms_latents: bool = False  # when they are summed
    answer_eps: float | None = None  # of norms of each expert's answer, before they are added
    shared_gate: bool = False  # the shared expert counts as much as a sigmoid of the token says
    together: float = 1.0  # how much what shared experts and all the others answer counts, when it is added
    expert_bias: bool = False
    weighs_input: bool = False  # what an expert is given is weighted, and not its answer
    keeps_rows: bool = False  # Triton's kernels write no answer over what they are given
    # gpt-oss: clamped gate, (up + 1) * gate * sigmoid(alpha * gate), softmax over the selected experts only
    swiglu_alpha: float | None = None
    swiglu_limit: float | None = None
    beside_dense: bool = False  # an MLP of the model's, each with norms of its own at either end
    hashed_layers: int = 0  # of the first so many, a token's number says which experts it goes to
    image_intermediate_size: int | None = None  # of as many experts again, for tokens that are no text
    idle_routers: tuple[str, ...] = ()  # beside its own, for tokens that are no text
    zero_experts: int = 0  # behind the others, of which each answers what it is given
    router_width: int | None = None  # of the MLP that routes, beside what the layer before has made in it
    banks: int = 0  # of experts with their router, which layers share by turns; 0: each has its own
    sinks: int = 0  # shared experts that it scores beside those of its choice, and of which each counts
    redundant: int = 0  # so many more places, for second copies of experts

    @property
    def places(self) -> int:
        return self.num_experts + self.redundant

    def expert_at(self, place: int) -> int:
        """As a checkpoint counts them: copies are those of the first experts, and shared ones are behind."""
        return place % self.num_experts if place < self.places else place - self.redundant

    def is_hashed(self, layer: int) -> bool:
        return layer < self.hashed_layers


@dataclass(frozen=True, slots=True)
class RopeConfig:
    """Of the first `dim` values of each head. `parameters` are config.json's, of its `rope_type`. Cosines and
    sines of the first `mixed` frequencies are mixed by each KV head; of the others both are 1."""

    dim: int
    theta: float
    max_position: int
    interleaved: bool = False
    parameters: Mapping[str, Any] = field(default_factory=dict)
    mixed: int | None = None

    @property
    def long_from(self) -> int | None:
        """Of a longrope: a batch in which one position is no less turns all of its tokens as long ones."""
        is_long = self.parameters.get("rope_type") == "longrope"
        return self.parameters["original_max_position_embeddings"] if is_long else None


@dataclass(frozen=True, slots=True)
class Growth:
    """Queries grow with their position p by 1 + strength x log(1 + floor((p + shift) / length))."""

    strength: float
    length: float
    shift: int = 0


@dataclass(frozen=True, slots=True)
class PowerGrowth:
    """... by (1 + (p + shift) / length) to such a power, in float32."""

    power: float
    length: float
    shift: int = 0


@dataclass(frozen=True, slots=True)
class FloorGrowth:
    """... by 1 + strength x log((p + 1) / floor) where that is more than 1, in float32."""

    strength: float
    floor: float


@dataclass(frozen=True, slots=True)
class DistanceConfig:
    """What scores are given for how far a key is behind its query: so many profiles of `extent` distances,
    which each head of a token mixes. A key farther behind is given nothing."""

    profiles: int
    extent: int

    def __post_init__(self) -> None:
        check_model(self)


@dataclass(frozen=True, slots=True)
class BlockConfig:
    """What chooses a KV head's blocks of `block_size` tokens: a head of an indexer each, by its best score of
    a block. So many of the last are chosen whatever they score."""

    num_heads: int
    head_dim: int
    block_size: int
    top_k: int
    local_blocks: int

    @property
    def seen(self) -> int:
        """Of a request that is no longer, every token."""
        return self.block_size * self.top_k


@dataclass(frozen=True, slots=True)
class IndexerConfig:
    """The sparse-attention indexer of DeepSeek-V3.2, GLM-5 and Qwen4: its own small key cache and a top-k.

    Of a `pool` of tokens there is one key, and all are chosen; those that have none yet are always seen.
    Layers that are `sharing` have none of this, and see what the one before them saw.
    """

    num_heads: int
    head_dim: int
    top_k: int
    interleaved: bool = True
    pool: int = 1
    turns_last: bool = False  # the last values of each head, and else its first
    norm_eps: float = 1e-6  # of a key's norm
    sharing: tuple[int, ...] = ()


@dataclass(frozen=True, slots=True)
class AttentionConfig:
    """One kind of attention. In latent attention `head_dim` is a query's."""

    num_heads: int
    num_kv_heads: int
    head_dim: int
    rope: RopeConfig | None
    scale: float
    window: int | None = None
    both_ways: bool = False  # tokens see those behind them as those before
    bias: bool = False
    output_bias: bool = False
    sinks: bool = False
    sink_keys: bool = False  # ... or a key of each KV head, which stands for no token and has no value
    # Of each head; without weights, "bare" by ones; of all as one, where a rank may hold others' weights.
    qk_norm: Literal["none", "head", "head by mean", "unit", "bare", "all", "all, held whole"] = "none"
    output_gate: bool = False  # a query head brings the sigmoid that its answer is multiplied by
    head_gate: bool = False  # ... or each token one a head, of a matrix of its own
    value_gate: bool = False  # ... or of such a matrix one a value
    gate_bias: bool = False  # one a head, in front of its sigmoids
    gates_first: bool = False  # either is in the first matrix of latents, in whole eights of rows
    norms_rest: bool = False  # of a latent key what is turned, before it is
    softplus_gate: Literal["head", "value"] | None = None  # ... or a softplus, one a head or one a value
    norms_answers: bool = False  # of each head, by ones, in front of those gates
    norms_turned: bool = False  # queries and keys are normed after their rope
    score_cap: float | None = None  # scores are a tanh of themselves, so high
    score_growth: int | None = None  # ... at a position p behind this one, log p / log of it times as high
    chunk: int | None = None  # tokens see those before them in their own chunk
    growth: Growth | PowerGrowth | FloorGrowth | None = None
    distance: DistanceConfig | None = None
    value_dim: int | None = None  # of a value's head, where it is narrower than a key's
    clip: float | None = None  # of queries, keys and values, which are no larger, nor less than that below 0
    value_scale: float = 1.0  # values count so much, as they are kept
    key_scale: float | None = None  # and keys, before they are turned
    turns_in_fp32: bool = False  # copies, whatever the model is in
    idle_norms: bool = False  # of queries and of keys, which SGLang makes and nobody asks
    norms_values: bool = False  # of each head, without weights
    keys_are_values: bool = False  # before their norms: one matrix of a checkpoint is kept as two
    any_rows: bool = False  # quantization blocks need not fit a rank's queries, keys and values
    query_rank: int | None = None  # of what queries are made of, normed and whole on every rank
    value_gate_by: Literal["silu", "softplus"] | None = None  # of a matrix of its own, one a value, all apart
    routed: MoEConfig | None = None  # behind such gates: values are sums of silus, of as many matrices
    inputs: int = 1  # rows as wide as so many of the model's are what it attends with
    blocks: BlockConfig | None = None  # of tokens, which are all that it sees
    pools: IndexerConfig | None = None  # ... or what chooses pools of them, for all heads alike
    crosses: bool = False  # to what a tower made of images alone: a request without one skips the layer

    def __post_init__(self) -> None:
        check_model(self, self.blocks, self.pools)

    @property
    def value_width(self) -> int:
        return self.value_dim or self.head_dim


@dataclass(frozen=True, slots=True)
class FusionConfig:
    """How a draft takes up what its target made of a token: so many `states`, each `width` wide, beside each
    other, become one row. Before that EAGLE3 norms them as a whole, or each by itself. EAGLE puts the token's
    embedding before its one state, and the row is all that its layers are given."""

    states: int
    width: int
    bias: bool = False
    norms_whole: bool = False
    norms_each: bool = False
    gives_normed: bool = False  # to its own next step, and else what it adds up to
    is_fed: bool = True  # by the states of `layers`, else by the target's last alone, and is not asked
    layers: tuple[int, ...] = ()  # of the target, whose answers these are; empty: as SGLang chooses
    beside_token: bool = False  # behind its embedding, which is as wide as the draft
    split: bool = False  # the row is made by all ranks, each a part of it
    drafts_block: bool = False  # all tokens at once, by what layers keep of the row, which is normed
    of_layers: int | None = None  # so many has a target of such a draft

    def __post_init__(self) -> None:
        check_model(self)


@dataclass(frozen=True, slots=True)
class LayerInputsConfig:
    """What each layer is given of a token beside its rows, so wide: of a table of so many tokens, and of the
    token's embedding."""

    vocab_size: int
    width: int
    gathered: bool = False  # of the embedding each rank makes a part

    def __post_init__(self) -> None:
        check_model(self)


@dataclass(frozen=True, slots=True)
class CompressedConfig:
    """DeepSeek-V4's attention: one key, which is the value too, of each token of a window, and in most layers
    of each group of earlier ones."""

    q_lora_rank: int
    output_groups: int
    output_rank: int
    indexer: IndexerConfig
    rates: Mapping[str, int] = field(default_factory=dict)  # tokens of a group, by kind of layer
    behind: tuple[str, ...] = ()  # kinds of layers that are told behind the last: those that draft


@dataclass(frozen=True, slots=True)
class StreamsConfig:
    """Several residual streams: what a layer reads is their weighted sum, what it answers is added to each,
    and before that they are mixed, by weights whose rows and columns are made to sum to one in `steps`.
    Without steps each stays what it is."""

    count: int
    steps: int
    eps: float
    weighs_last: bool = True  # what the last norm reads, else their mean
    magnitude: float = 2.0  # no stream is given more of an answer than so much


@dataclass(frozen=True, slots=True)
class GatedStreamsConfig:
    """... what a layer reads is their mean, each channel of each by a gate of so low a rank; what it answers
    is added to each by a gate. There is no other norm."""

    count: int
    rank: int

    def __post_init__(self) -> None:
        check_model(self)


SeveralStreams = StreamsConfig | GatedStreamsConfig


@dataclass(frozen=True, slots=True)
class MLAConfig:
    q_lora_rank: int | None
    kv_lora_rank: int
    qk_nope_head_dim: int
    qk_rope_head_dim: int
    v_head_dim: int
    indexer: IndexerConfig | None
    query_scale: float = 1.0  # of compressed queries, and of latents, as soon as they are normed
    latent_scale: float = 1.0
    norm_eps: float = 1e-6  # of its norms, whatever those of rows have

    @property
    def qk_head_dim(self) -> int:
        return self.qk_nope_head_dim + self.qk_rope_head_dim

    @property
    def cache_dim(self) -> int:
        return self.kv_lora_rank + self.qk_rope_head_dim


@dataclass(frozen=True, slots=True)
class Caps:
    """How large a layer's gates, after their silu or `before` it, and its ups, to either side, may be: those
    of routed experts, and those of the dense MLP or of the shared experts."""

    routed: float | None = None
    others: float | None = None
    before: bool = False
    closed: float | None = None  # ... this share of the gates, by how those of a token are spread


NO_CAPS = Caps()


@dataclass(frozen=True, slots=True)
class Multipliers:
    """Of what the embedding gives, of each answer before its residual, and of logits, which may be capped."""

    embedding: float = 1.0
    residual: float = 1.0
    logits: float = 1.0
    logit_cap: float | None = None
    attention: tuple[float, float] = (1.0, 1.0)  # beside a recurrence: of what it is given, of its answer
    recurrence: tuple[float, float] = (1.0, 1.0)
    mlp: tuple[float, float] | None = None  # of its gates before they open, of its answer


NO_MULTIPLIERS = Multipliers()
