"""The start of one server rank, top to bottom: `start` is the story, each step a phase that is measured.

It runs on a GPU, on a CPU, and on meta tensors as a prediction; with real peers or as a virtual rank.
"""

from __future__ import annotations

from collections.abc import Callable
from contextlib import nullcontext
from dataclasses import replace
from typing import Protocol

import torch

from runtime.devices.base import Device
from runtime.forward.batch import ForwardBatch, dummy_decode_batch, dummy_extend_batch, dummy_prompts
from runtime.forward.comm import Communicator
from runtime.forward.dp_attention import RunnerKind
from runtime.forward.kv_pool import KVPool, make_kv_pool, make_paged_pool
from runtime.forward.logits_processor import autotune_dummy_run_mode
from runtime.graphs.base import CaptureProgress, CaptureSite
from runtime.graphs.decode import DecodeGraphs
from runtime.graphs.prefill import PrefillGraphs
from runtime.models.build import make_build
from runtime.models.decoder import Decoder, sample_layers
from runtime.models.encoder import EncoderWeights
from runtime.moe.dispatch import Dispatcher
from runtime.moe.dispatcher import make_dispatcher
from runtime.server.config import ModelConfig, RuntimeConfig
from runtime.server.own_draft import OwnDraft
from runtime.server.parallel import stage_layers
from runtime.server.parallel_config import ParallelConfig
from runtime.server.rows import aligned_rows
from runtime.server.start_sizes import captured_sizes, start_sizes
from runtime.server.units import GIB
from runtime.server.unpredicted import ATTENTION, unpredicted
from runtime.start.adapting import Adapting
from runtime.start.channels import Channels
from runtime.start.drafting import Drafting
from runtime.start.first_use import copy_routers, open_deepep, start_cublas
from runtime.start.hosting import Hosting
from runtime.start.options import StartOptions
from runtime.start.phases import PhaseRecorder
from runtime.start.serving import Serving
from runtime.start.sglang_buffers import SglangBuffers
from runtime.start.tiering import Tiering
from runtime.start.weights_beside import made_first, weights_beside


class Autotune(Protocol):
    """Runs a dummy forward so that the kernels it reaches are tuned."""

    def run(self, forward: Callable[[], object], what: str) -> None: ...


class ModelRunner(Adapting, Drafting, Hosting, Tiering, Serving):
    def __init__(
        self,
        model: ModelConfig,
        parallel: ParallelConfig,
        runtime: RuntimeConfig,
        device: Device,
        connect: Callable[[], Communicator],
        recorder: PhaseRecorder | None = None,
        options: StartOptions | None = None,
        autotune: Autotune | None = None,
        progress: CaptureProgress = lambda runner, done, total: None,
        own_draft: OwnDraft | None = None,
    ) -> None:
        self.model, self.parallel, self.runtime, self.own_draft = model, parallel, runtime, own_draft
        self.device, self.connect = device, connect
        self.recorder = recorder or PhaseRecorder(device)
        self.options = options or StartOptions()
        self.autotune, self.progress = autotune, progress
        self.kernels_loaded = self.has_deepep = False
        self.drafts, self.draft_kvs = (), []
        self.channels = Channels(model, parallel, runtime, device, self.options.as_sglang)

    @torch.no_grad()
    def start(self) -> None:
        with self.device.active():
            self.init_communicator()
            self.load_weights()
            self.init_adapters()
            if self.runtime.release.loads_drafts_before_pool:
                self.load_draft_weights()
                self.init_kv_pool()
            else:
                self.init_kv_pool()
                self.load_draft_weights()
            self.init_draft_kv_pool()
            if self._ends_before(ATTENTION):
                return
            self.init_attention_backend()
            self.init_eager_buffers()
            if self._ends_before():
                return
            self.tune()
            self.tune_extend()
            self.capture_prefill()
            self.capture_decode()
            self.capture_drafts(self._site())
            self.init_host_cache()
            with self.recorder.phase("ready"):
                self._open_deepep()
                self.comm.barrier()

    def init_communicator(self) -> None:
        """Join the peers, and measure what is free before anything is loaded."""
        with self.recorder.phase("communicator"):
            self.device.claim("context")
            self.comm = self.connect()
            self.channels.open(self.comm)
            self.baseline = self._free_everywhere()
        self.sizes = start_sizes(self.model, self.runtime, self.parallel.pp)
        self.recorder.tell(**self.sizes.facts())

    def load_weights(self) -> None:
        stage = stage_layers(self.model.num_layers, self.parallel, self.comm.layout.pp_rank)
        self.layers = sample_layers(self.model) if self.options.sample_layers else tuple(stage)
        dispatcher = self._make_dispatcher()
        with self.recorder.phase("weights"):
            if not self.channels.has_own:
                self.device.claim("torch kernels")
            self.place_experts()
            first = self._made_first()
            self.decoder = Decoder(
                self.model,
                self.runtime,
                self.comm,
                self.device.torch_device,
                self.layers,
                dispatcher,
                self.own_draft.captures if self.own_draft else (),
                host=self.make_host_weights(),
            )
            self.encoder = self._make_encoder()
            del first
            if self.options.as_sglang:
                self.beside = weights_beside(self.decoder, self.runtime, self.layers)
            if self.options.weights is None:
                self.decoder.load_dummy(self.options.seed)
            else:
                self.decoder.load_hf(self.options.weights)
            self.decoder.reach(self.runtime.positions)
            self.visit_host_weights()

    def _made_first(self) -> list[torch.nn.Module]:
        place = self.comm, self.device.torch_device, self.layers
        return made_first(self.model, self.runtime, *place) if self.options.as_sglang else []

    def _make_encoder(self) -> EncoderWeights | None:
        if self.model.encoder is None or self.options.sample_layers:
            return None
        dtype, device = self.decoder.build.dtype, self.device.torch_device
        return EncoderWeights(self.model.encoder.weights, self.comm, dtype, device)

    def _make_dispatcher(self) -> Dispatcher | None:
        """FlashInfer's all-to-all comes with a workspace: told apart from the weights, which it precedes."""
        if self.model.moe is None or self.runtime.moe_a2a_backend != "flashinfer":
            return None
        device = self.device.torch_device
        with self.recorder.phase("moe dispatcher"):
            build = make_build(self.model, self.runtime, self.comm, device)
            return make_dispatcher(self.model, self.runtime, self.comm, build.dtype, device)

    def init_kv_pool(self) -> None:
        """What the static fraction leaves after the weights becomes tokens, and tokens bound the requests."""
        with self.recorder.phase("kv pool"):
            self.plan = self._plan_pool()
            self.max_running_requests = self.options.max_running_requests or self.plan.max_running_requests
            self._tell_pool()
            self.kv = self._make_kv_pool()
        self.sglang = None
        if self.options.as_sglang:
            self.sglang = SglangBuffers(
                self.model, self.parallel, self.runtime, self.sizes, self.plan, self.device
            )

    def _ends_before(self, first: str = "") -> bool:
        """A phase, or forwards, where nobody knows what they take of SGLang."""
        phases = unpredicted(self.model, self.runtime, bool(self.sizes.prefill_graphs))
        ends = self.options.as_sglang and bool(phases) and first in ("", phases[0])
        if ends:
            self.recorder.tell(not_predicted=phases)
        return ends

    def _make_kv_pool(self) -> KVPool:
        model, device = self.model, self.device.torch_device
        if self.plan.compressed is not None:
            return make_paged_pool(self.plan, model, self.runtime, self.layers, device)
        return make_kv_pool(self.plan, model, self.parallel, self.layers, device)

    def init_attention_backend(self) -> None:
        with self.recorder.phase("attention backend"):
            start_cublas(self.device)
            if self.sglang:
                self.sglang.init_attention_backend()
                if (attention := self._draft_attention()) is not None:
                    self.sglang.init_draft_backend(attention)

    def init_eager_buffers(self) -> None:
        if self.sglang and self.sglang.holds_eager_inputs:
            with self.recorder.phase("eager buffers"):
                self.sglang.init_eager_runner()

    def tune(self) -> None:
        """A decode of as many requests as may run, its logits skipped: every kernel picks its tactic."""
        if self.runtime.disable_autotune:
            return
        rows = aligned_rows(self.max_running_requests, self.sizes.width, self.parallel)
        with self.recorder.phase("autotune"):
            self._load_kernels()
            self.channels.carry_eager(rows)
            held = self.sglang.autotune_batch(rows) if self.sglang else None
            requests = rows // self.sizes.width
            batch = self._dummies(requests)
            with self.sglang.timing_decodes([requests]) if self.sglang else nullcontext():
                self._tune_with(batch, "eager", "decode")
            del held

    def _dummies(self, requests: int) -> ForwardBatch:
        if self.runtime.embeds:
            return dummy_prompts(requests, self.device.torch_device)
        return dummy_decode_batch(requests, self.sizes.width, self.device.torch_device)

    def tune_extend(self) -> None:
        if self.runtime.disable_autotune or not self.runtime.autotune_extend:
            return
        with self.recorder.phase("autotune extend"):
            batch = dummy_extend_batch(self.sizes.chunk, self.sizes.context_length, self.device.torch_device)
            with self.sglang.timing_prefills() if self.sglang else nullcontext():
                self._tune_with(batch, "prefill_graph", "extend")

    def capture_prefill(self) -> None:
        self.prefill_graphs: PrefillGraphs | None = None
        self.graph_pool = self.device.graph_pool()
        sizes = self.sizes.prefill_graphs
        if not sizes or self.options.sample_layers:
            return
        self.device.empty_cache()
        room = self._room_for_prefill_graphs()
        self.recorder.tell(prefill_graphs_room=room)
        if room is not None and room < 0:
            self.recorder.tell(prefill_graphs=())
            return
        with self.recorder.phase("prefill graphs"):
            self._load_kernels()
            self.channels.open_waiting()
            self.prefill_graphs = PrefillGraphs(self._site(), self.decoder, self.kv, sizes)
            with self.sglang.timing_prefills() if self.sglang else nullcontext():
                self.prefill_graphs.capture()

    def _room_for_prefill_graphs(self) -> int | None:
        """Bytes free beyond what some releases want: with less they give up what nobody asked for."""
        memory, needed = self.device.memory(), int(self.runtime.release.prefill_graphs_need * GIB)
        is_asked = self.runtime.prefill_graphs_asked or not self.options.as_sglang
        return None if is_asked or not (needed and memory.total) else memory.free - needed

    def capture_decode(self) -> None:
        self.decode_graphs: DecodeGraphs | None = None
        sizes = captured_sizes(self.max_running_requests, self.parallel, self.runtime)
        if not sizes or self.options.sample_layers:
            return
        self.device.empty_cache()
        with self.recorder.phase("decode graphs"):
            self._load_kernels()
            self.channels.open_waiting()
            if self.sglang:
                self.sglang.init_decode_graphs(sizes)
            self.decode_graphs = DecodeGraphs(self._site(), self.decoder, self.kv, sizes, self.sizes.width)
            with self.sglang.timing_decodes(sizes) if self.sglang else nullcontext():
                self.decode_graphs.capture()

    def _tune_with(self, batch: ForwardBatch, kind: RunnerKind, what: str) -> None:
        batch = self.dp_batch(batch, kind)

        def forward() -> None:
            with autotune_dummy_run_mode(run_lm_head=self.options.lm_head_in_autotune):
                self.forward_eager(batch)

        with self.device.side_stream():
            self.autotune.run(forward, what) if self.autotune else forward()

    def _load_kernels(self) -> None:
        """The first forward loads their modules."""
        self._open_deepep()
        if not self.kernels_loaded:
            for decoder in (self.decoder, *(draft.decoder for draft in self.drafts)):
                decoder.tell_free(self.device.memory().free)
                copy_routers(decoder)
            if self.channels.kernels_take_room:
                self.device.claim("kernels")
            self.kernels_loaded = True

    def _open_deepep(self) -> None:
        """At the first forward, which without graphs is the first request's."""
        deepep, moe = self.runtime.deepep, self.model.moe
        if deepep is None or moe is None or self.has_deepep or self.runtime.moe_a2a_backend != "deepep":
            return
        open_deepep(deepep, self.comm.size("moe_ep"), self.model.hidden_size, moe.places, self.device)
        self.has_deepep = True

    def _site(self) -> CaptureSite:
        return CaptureSite(
            device=self.device,
            parallel=self.parallel,
            runtime=self.runtime,
            comm=self.comm,
            context_length=self.sizes.context_length,
            policy=replace(self.options.capture, keeps_rows=self.options.as_sglang),
            pool=self.graph_pool,
            progress=self.progress,
        )
