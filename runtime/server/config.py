"""The shape of a model and of one rank's start: data, no torch."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from typing import Literal

from runtime.server.adapters import Adapters
from runtime.server.attention_buffers import WORKSPACES, Workspaces
from runtime.server.bounds import SERVER, check_flags, check_model
from runtime.server.deepep import DeepEP
from runtime.server.encoders.weight import Encoder
from runtime.server.excluded import Excluded
from runtime.server.expert_places import Placement
from runtime.server.formats.assigned import UNQUANTIZED, Quantized
from runtime.server.host_cache import HostCache
from runtime.server.layer_config import (
    NO_CAPS,
    NO_MULTIPLIERS,
    AttentionConfig,
    Caps,
    CompressedConfig,
    FusionConfig,
    LayerInputsConfig,
    MLAConfig,
    MoEConfig,
    Multipliers,
    NormStyle,
    SeveralStreams,
)
from runtime.server.ngrams import NgramConfig
from runtime.server.norm_gates import NormGates
from runtime.server.parallel_config import HeadOver
from runtime.server.recurrent import STATE_RULES, RecurrentConfig, StateRules
from runtime.server.releases import NEWEST, Release, release_named
from runtime.server.residual_config import EntryConfig, PredictionsConfig, SnapshotsConfig
from runtime.server.skips import SkipsConfig
from runtime.server.speculative_config import SpeculativeConfig
from runtime.server.table_config import AddedRowsConfig, PlacesConfig, ScoresConfig, TablesConfig
from runtime.server.tensor_names import EXPERTS_IN, USUAL, TensorNames

_GELUS: Mapping[str, Literal["erf", "tanh"]] = {"gelu": "erf", "gelu_tanh": "tanh"}
SLIDING_SHARE = 0.8  # --swa-full-tokens-ratio, where it does not say


@dataclass(frozen=True, slots=True)
class ModelConfig:
    """Of each layer: the entry of `attention` in `attention_kinds`, or "recurrent", or "none"; and "dense",
    "moe" or "none" in `layer_kinds`. With `recurs_beside`, layers that attend have the recurrence, too."""

    model_type: str
    hidden_size: int
    num_layers: int
    intermediate_size: int
    vocab_size: int
    max_position: int
    attention: Mapping[str, AttentionConfig] = field(default_factory=dict)
    attention_kinds: tuple[str, ...] = ()
    layer_kinds: tuple[str, ...] = ()
    rms_eps: float = 1e-6
    tie_word_embeddings: bool = False
    holds_head: bool = False  # a tied one too, apart from the embedding
    whole_embedding: bool = False  # on every rank under DP attention: srt/models, enable_tp
    embeds_whole: bool = False  # on every rank, always: srt/models/gemma3_causal.py
    norms_embedding: bool = False  # without weights
    embedding_norm: str | None = None  # ... or with those that are called so
    scales_layers: bool = False  # each gives its rows, times a number of its own, with nothing left to add
    head_in_fp32: bool = False  # and with it an embedding that it is tied to
    head_bias: bool = False
    normed_head: bool = False  # of columns that are made one long
    unit_head: bool = False  # of rows that are
    rows_in_fp32: bool = False  # that it reads, before it is known which it does
    logits_in_fp32: bool = False  # as soon as they are multiplied, whatever the head is
    head_vocab: int | None = None  # of a head that knows fewer tokens than the embedding
    head_padding: int = 64  # rows of a head of its own come in so many
    fusion: FusionConfig | None = None  # of a draft for a target that it does not look like
    norms: NormStyle = "before"
    centred_norms: bool = False  # weights are told less one
    last_norm_whole: bool = False  # but those of the last, before the head
    answer_eps: float | None = None  # of norms of answers, where it is another
    gate_temperature: float | None = None  # of residuals in float32 that are gated against answers
    norm_gates: NormGates | None = None  # behind those of rows and of latents
    mean_norms: bool = False  # of what is left when the mean is taken away
    norm_biases: bool = False  # are added by these
    bare_norms: bool = False  # which have not even weights
    wide_norms: bool = False  # a step after the other, in float32
    norm_groups: int = 1  # of a row, which these norm by themselves
    gated_mlps: bool = True  # silu(gate) * up; without a gate, what `activation` says, or relu(up) squared
    mlp_biases: bool = False  # of dense ones
    scaled_mlps: bool = False  # dense ones have a number of their own, which their answer is multiplied by
    activation: Literal[
        "silu", "gelu", "gelu_tanh", "clamped", "situ", "xielu", "gelu_new", "relu", "gegelu"
    ] = "silu"
    swiglu: tuple[float, float] | None = None  # alpha and limit, of all MLPs; of situ, those of `situ`
    multipliers: Multipliers = NO_MULTIPLIERS
    checkpoint_quantization: str | None = None
    quantization_block: tuple[int, int] | None = None
    quantized: Quantized = UNQUANTIZED
    dtype: str = "bfloat16"
    moe: MoEConfig | None = None
    caps: tuple[Caps, ...] = ()  # each layer's, where one has some
    mlp_sizes: tuple[int, ...] = ()  # each layer's, where they differ
    expert_sizes: tuple[tuple[int, int], ...] = ()  # ... how wide an expert is, and how many a token asks
    key_layers: tuple[int, ...] = ()  # whose keys and values each layer reads, where some read others'
    idle_keys: bool = False  # layers that do not attend have a place in the cache, too
    layer_inputs: LayerInputsConfig | None = None
    tables: TablesConfig | None = None  # of the vocabulary, where they are not as wide as rows
    places: PlacesConfig | None = None  # of positions, which are added to embeddings
    added: AddedRowsConfig | None = None  # ... and of types of tokens, behind which all is normed
    scores: ScoresConfig | None = None  # of a class that generates nothing, in place of a head
    rounds: int = 1  # in which its layers run on the same weights, and count each time
    norms_rounds: bool = False  # as the last norm does, what a round begins with
    gates_rounds: bool = False  # what a later one sees, against what it sees of the first
    idle_rounds: bool = False  # the cache has a place for as many rounds of each of them
    canvas: int = 0  # tokens that it writes at once, by layers whose rows then count otherwise
    in_windows: bool = False  # tokens of all layers are kept as those behind a window, whatever these see
    windows_apart: bool = True  # in a pool of their own, where layers of its family have one
    mla: MLAConfig | None = None
    # Its matrix of keys and values, once that is taken apart; both that make latents are by themselves.
    drops_absorbed: bool = False
    mla_behind: MLAConfig | None = None  # of layers behind a window, where theirs is another
    compressed: CompressedConfig | None = None
    streams: SeveralStreams | None = None
    predictions: PredictionsConfig | None = None
    snapshots: SnapshotsConfig | None = None
    skips: SkipsConfig | None = None
    entry: EntryConfig | None = None  # of norms that are "entered"
    ngrams: NgramConfig | None = None
    recurrent: RecurrentConfig | None = None
    recurs_beside: bool = False
    shortcut: bool = False  # two layers are one of a checkpoint's: see `halves`
    names: TensorNames = USUAL
    by_transformers: bool = False  # its layers are transformers', of matrices as a checkpoint has them
    encoder: Encoder | None = None  # of what is no text
    obstacles: tuple[str, ...] = ()  # what of it this runtime does not know
    uncomputed: tuple[str, ...] = ()  # of what is known, its sizes too, what it does not compute

    def __post_init__(self) -> None:
        check_model(self, self.moe, self.mla, self.mla and self.mla.indexer, self.compressed, self.recurrent)
        check_model(self.mla_behind)

    @property
    def gelu(self) -> Literal["", "erf", "tanh"]:
        """By what, where its gates open by one."""
        return _GELUS.get(self.activation, "")

    @property
    def is_mla(self) -> bool:
        return self.mla is not None

    @property
    def takes_head(self) -> bool:
        """A draft that has none of its own, as soon as its target's is there."""
        return self.fusion is not None and self.head_vocab is None

    @property
    def has_tables(self) -> bool:
        """An embedding and a head: a draft of blocks has none, at no time."""
        return self.fusion is None or not self.fusion.drafts_block

    @property
    def halves(self) -> int:
        """Layers that a checkpoint, and SGLang, call one. With a shortcut, each of two attends and has a
        dense MLP, and experts beside the first one's answer after the second."""
        return 2 if self.shortcut else 1

    @property
    def logits_size(self) -> int:
        return self.head_vocab or self.vocab_size

    @property
    def num_moe_layers(self) -> int:
        return self.layer_kinds.count("moe")

    @property
    def main_attention(self) -> AttentionConfig:
        """Of the layers that see everything, where there are any."""
        return self.attention.get("full") or next(iter(self.attention.values()))

    @property
    def crosses(self) -> bool:
        """Some of its layers attend to images alone."""
        return any(one.crosses for one in self.attention.values())

    @property
    def adds_at_once(self) -> bool:
        """Each layer begins with rows to which nothing is left to be added."""
        return self.model_type == "mllama_text_model" or self.norms == "apart"

    def attention_name(self, kind: str) -> str:
        """Of the part that attends, in layers of this kind."""
        attention = self.attention.get(kind)
        return self.names.crossing if attention is not None and attention.crosses else self.names.attention

    def keeps_tokens(self, layer: int) -> bool:
        """Whether it has keys and values of every token."""
        return self.attention_kinds[layer] in self.attention

    def is_recurrent(self, layer: int) -> bool:
        """Whether it has a state of every request."""
        return self.attention_kinds[layer] == "recurrent" or (self.recurs_beside and self.keeps_tokens(layer))

    @property
    def own_layers(self) -> int:
        """Those that have weights of their own."""
        return self.num_layers // self.rounds

    def layer_name(self, layer: int) -> str:
        if self.names.the_layer is not None:
            return self.names.the_layer
        return f"{self.names.layers}.{layer % self.own_layers // self.halves}"

    def half_name(self, layer: int) -> str:
        """What follows the name of a part of which a checkpoint's layer has two."""
        return f".{layer % 2}" if self.shortcut else ""

    def mlp_size(self, layer: int) -> int:
        return self.mlp_sizes[layer] if self.mlp_sizes else self.intermediate_size

    def layer_moe(self, layer: int) -> MoEConfig | None:
        """Of all layers at once, `moe` has the widest experts, and the most of them a token."""
        if self.moe is None or not self.expert_sizes:
            return self.moe
        width, top_k = self.expert_sizes[layer]
        return replace(self.moe, intermediate_size=width, top_k=top_k)

    @property
    def moes(self) -> tuple[MoEConfig, ...]:
        """Those that differ, in the order of their layers."""
        layers = (layer for layer, kind in enumerate(self.layer_kinds) if kind == "moe")
        found = map(self.layer_moe, layers if self.expert_sizes else (0,))
        return tuple(dict.fromkeys(moe for moe in found if moe is not None))

    def key_layer(self, layer: int) -> int:
        """Whose keys and values it reads. Its own have a place in the cache even where nobody writes them."""
        return self.key_layers[layer] if self.key_layers else layer

    def shares_choice(self, layer: int) -> bool:
        """Which tokens it sees an indexer has chosen for a layer before it."""
        indexer = None if self.mla is None else self.mla.indexer
        return indexer is not None and layer in indexer.sharing

    def layer_mla(self, layer: int) -> MLAConfig:
        return self.mla_of(self.attention_kinds[layer])

    def mla_of(self, kind: str) -> MLAConfig:
        """Of one kind of layers."""
        assert self.mla is not None
        return self.mla_behind if kind == "sliding" and self.mla_behind is not None else self.mla

    def layer_caps(self, layer: int) -> Caps:
        return self.caps[layer] if self.caps else NO_CAPS

    @property
    def excluded(self) -> Excluded:
        """What its checkpoint keeps plain."""
        return self.quantized.excluded

    def experts_name(self, mlp: str) -> str:
        """The module that holds the experts of this one."""
        own = EXPERTS_IN.get(self.model_type)
        return f"{mlp if own is None else mlp.removesuffix('.mlp') + own}.experts"

    def block_name(self, layer: int) -> str:
        """The module of the experts of this layer and of their router."""
        if self.moe is not None and self.moe.banks:
            return f"model.meta_mlp.{layer % self.moe.banks}"
        return f"{self.layer_name(layer)}.{'mlp' if self.shortcut else self.names.mlp}"

    def shared_name(self, mlp: str) -> str:
        """The module of the shared experts of this one."""
        name = "shared_expert" if self.moe is not None and self.moe.shared_gate else self.names.shared
        if self.names.shared_in_mlp:
            return f"{mlp}.{name}"
        return f"{mlp.removesuffix(self.names.mlp)}{name}"

    def layer_attention(self, layer: int) -> AttentionConfig:
        """Of a layer that keeps tokens, or has a place for them."""
        return self.attention.get(self.attention_kinds[layer % self.num_layers], self.main_attention)


@dataclass(frozen=True, slots=True)
class RuntimeConfig:
    """What a start goes by, resolved: `Server.runtime` is the one that a server would come to."""

    dtype: str = "bfloat16"
    quantization: str | None = None
    kv_cache_dtype: str = "auto"
    page_size: int = 1
    attention_backend: str = "triton"
    prefill_attention_backend: str = ""  # where it is another
    workspaces: Workspaces = WORKSPACES
    moe_runner_backend: str = "auto"
    moe_a2a_backend: str = "none"
    fp4_gemm_backend: str = ""
    fp8_gemm_backend: str = "auto"
    a2a_max_tokens: int | None = None  # of a rank, in its workspace; None: a chunk or a full decode batch
    deepep: DeepEP | None = None
    adapters: Adapters | None = None
    host_cache: HostCache | None = None
    offloaded: int = 0  # bytes of a rank's layers that lie in the host's memory, or a matrix more
    placement: Placement | None = None  # of experts that move, or have copies
    prefill_tokens: int = 8192  # of one rank's prefill; without chunks, those of the longest one
    prefill_buffer: int = 8192  # tokens of its inputs, where it comes in chunks, which may grow; else 0
    max_running_requests: int | None = None  # of the whole server; None: by the memory that is left
    max_total_tokens: int | None = None  # of a rank's pool, at most
    sliding_share: float = SLIDING_SHARE  # of its tokens, in the pool of layers behind a window
    mem_fraction_static: float = 0.85
    images_mib: int = 0  # of that, kept free for images
    context_length: int | None = None  # None: the model's
    positions: int = 0  # that tables of angles have at least
    embeds: bool = False  # it answers a prompt with one row, and generates nothing
    keeps_nothing: bool = False  # of a token, in its cache, which has a page a layer
    packs_latents: bool = True  # of sparse attention, in fp8, with scales
    decode_graphs: tuple[int, ...] = ()
    prefill_graphs: tuple[int, ...] = ()
    prefill_graphs_asked: bool = False  # by a flag that chooses how they are captured
    whole_prefills: bool = False  # each in one graph; SGLang's are in pieces, between which attention runs
    is_pd_decode: bool = False
    arriving: int | None = 0  # requests that have a row beside those that run; None: by how many run
    disable_autotune: bool = False
    autotune_cached: bool = False  # every tactic: the dummy forward still runs, but nothing is profiled
    autotune_extend: bool = False
    fused_finalize: bool = False
    fuses_shared_experts: bool = True
    whole_dense_mlps: bool = False
    gathers_nvfp4: bool = False
    two_batches: bool = False  # each step is two, one after the other
    tells_dense_split: bool = False  # then rows are scattered among attention's ranks
    disable_custom_all_reduce: bool = False
    head_over: HeadOver = "all ranks"
    random_weights: bool = False  # by --load-format dummy
    speculative: SpeculativeConfig | None = None
    states: StateRules = STATE_RULES
    # What decides how a server lays its weights out: its GPU, and its MoE backend where another stands in.
    sm_major: int = 9
    served_by: str = ""
    by_own_kernels: bool = False  # this runtime's, as a measurement has them
    sglang_version: str = NEWEST.version  # the target's: the call's arguments and the dummy batch follow it

    def __post_init__(self) -> None:
        check_flags(self, SERVER)

    @property
    def release(self) -> Release:
        return release_named(self.sglang_version).release

    @property
    def width(self) -> int:
        """Tokens that a decode step brings a request."""
        return self.speculative.num_draft_tokens if self.speculative else 1
