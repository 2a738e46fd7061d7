"""The start of one server rank: `ModelRunner.start` calls one method per phase, and each phase is measured.

The start runs on a GPU, on a CPU, or on meta tensors as a prediction, with real peers or as a virtual rank.
"""

from collections.abc import Callable
from dataclasses import replace
from typing import Any

import torch

from runtime.decoder.build import make_build
from runtime.decoder.decoder import Decoder, StageState
from runtime.decoder.draft import DraftModel
from runtime.devices.base import Device
from runtime.forward.batch import ForwardBatch, dummy_decode_batch
from runtime.forward.comm import Communicator
from runtime.forward.dp_attention import PeerRows, plan_dp_tokens
from runtime.forward.kv_pool import make_cache, make_kv_pool
from runtime.forward.logits_processor import LogitsOutput, autotune_dummy_run_mode
from runtime.graphs.base import CaptureSite
from runtime.graphs.decode import DecodeGraphs, PrefillGraphs
from runtime.graphs.draft import DraftRunners, make_draft_runners
from runtime.moe.dispatcher import Dispatcher, make_dispatcher
from runtime.server.config import ModelConfig, RuntimeConfig
from runtime.server.parallel import ParallelConfig, stage_layers
from runtime.server.sizes.batches import aligned_rows, captured_sizes
from runtime.server.sizes.pool_plan import FreeMemory, PoolPlan, plan_pool, plan_tokens
from runtime.server.sizes.sizing import kv_bytes_per_token
from runtime.server.sizes.state_sizes import state_bytes
from runtime.start.options import StartOptions
from runtime.start.phases import PhaseRecorder

UNLIMITED_TOKENS = 4096  # of the KV pool of a device whose memory is not limited
COLLECTIVE_GROUPS = ("tp", "pp", "attn_tp", "moe_tp", "moe_ep")


class ModelRunner:
    def __init__(
        self,
        model: ModelConfig,
        parallel: ParallelConfig,
        runtime: RuntimeConfig,
        device: Device,
        connect: Callable[[], Communicator],
        recorder: PhaseRecorder | None = None,
        options: StartOptions | None = None,
    ) -> None:
        self.model, self.parallel, self.runtime = model, parallel, runtime
        self.device, self.connect = device, connect
        self.recorder = recorder or PhaseRecorder(device)
        self.options = options or StartOptions()
        self.context_length = runtime.context_length or model.max_position
        self.kernels_loaded = False
        self.draft: DraftModel | None = None
        self.prefill_graphs: PrefillGraphs | None = None
        self.decode_graphs: DecodeGraphs | None = None
        self.draft_runners: DraftRunners | None = None

    @torch.no_grad()
    def start(self) -> None:
        with self.device.active():
            self.init_communicator()
            self.load_weights()
            self.load_draft_weights()
            self.init_kv_pool()
            self.init_draft_kv_pool()
            self.init_attention_backend()
            self.tune()
            self.capture_prefill()
            self.capture_decode()
            self.capture_drafts()
            self.become_ready()

    def init_communicator(self) -> None:
        """Connect to the peer ranks, and read the free memory before anything is loaded."""
        with self.recorder.phase("communicator"):
            self.device.claim("context")
            self.comm = self.connect()
            self._open_groups()
            self.baseline = self._free_everywhere()
        self.recorder.tell(
            mem_fraction_static=self.runtime.mem_fraction_static,
            context_length=self.context_length,
            chunked_prefill_size=self.runtime.prefill_tokens,
            prefill_graphs=self.runtime.graphs.prefill,
        )

    def load_weights(self) -> None:
        self.layers = tuple(stage_layers(self.model.num_layers, self.parallel, self.comm.layout.pp_rank))
        dispatcher = self._make_dispatcher()
        with self.recorder.phase("weights"):
            if self.parallel.world_size == 1:
                self.device.claim("torch kernels")
            target = self.device.torch_device
            self.decoder = Decoder(self.model, self.runtime, self.comm, target, self.layers, dispatcher)
            self.decoder.load_dummy()

    def load_draft_weights(self) -> None:
        """Load the draft with an embedding and a head of its own, on the last stage, which feeds it."""
        if self.runtime.speculative is not None and self.decoder.is_last:
            with self.recorder.phase("draft weights"):
                place = self.comm, self.device.torch_device
                self.draft = DraftModel(self.model, self.runtime, *place, ropes=self.decoder.ropes)

    def init_kv_pool(self) -> None:
        """Turn the memory that the static fraction leaves into KV slots, which limit the requests."""
        with self.recorder.phase("kv pool"):
            self.plan = self._plan_pool()
            self.recorder.tell(**self._facts())
            place = self.parallel, self.layers, self.device.torch_device
            self.kv = make_kv_pool(self.plan, self.model, *place)

    def init_draft_kv_pool(self) -> None:
        """Add the draft's buffers. It uses the target's tables, so a token has the same slot in both."""
        if self.draft is not None:
            with self.recorder.phase("draft kv pool"):
                place = self.parallel, self.draft.layer_ids, self.device.torch_device
                cache = make_cache(self.plan, self.draft.decoder.model, *place)
                self.draft_kv = replace(self.kv, cache=cache)
                self.draft.share_tables(self.decoder)

    def init_attention_backend(self) -> None:
        """Run a small product, so that cuBLAS loads and takes its workspace."""
        with self.recorder.phase("attention backend"):
            self.device.claim("cublas")
            ones = torch.ones(16, 16, device=self.device.torch_device)
            torch.mm(ones, ones)

    def tune(self) -> None:
        """Run one decode of the largest batch, without logits: the tuner picks every kernel's tactic."""
        if not self.runtime.disable_autotune:
            with self.recorder.phase("autotune"):
                self._load_kernels()
                rows = aligned_rows(self.plan.max_running_requests, self.runtime.width, self.parallel)
                width, target = self.runtime.width, self.device.torch_device
                batch = self.dp_batch(dummy_decode_batch(rows // width, width, target))
                head = autotune_dummy_run_mode(run_lm_head=self.options.lm_head_in_autotune)
                with self.device.side_stream(), head:
                    self.forward(batch)

    def capture_prefill(self) -> None:
        self.graph_pool = self.device.graph_pool()
        sizes = self._captured(self.runtime.graphs.prefill)
        if sizes:
            with self.recorder.phase("prefill graphs"):
                self._load_kernels()
                self.prefill_graphs = PrefillGraphs(self._site(), self.decoder, self.kv, sizes)
                self.prefill_graphs.capture()

    def capture_decode(self) -> None:
        sizes = self._captured(captured_sizes(self.plan.max_running_requests, self.parallel, self.runtime))
        if sizes:
            with self.recorder.phase("decode graphs"):
                self._load_kernels()
                width = self.runtime.width
                self.decode_graphs = DecodeGraphs(self._site(), self.decoder, self.kv, sizes, width)
                self.decode_graphs.capture()

    def capture_drafts(self) -> None:
        asked = self.plan.max_running_requests, self.parallel, self.runtime
        sizes = self._captured(captured_sizes(*asked, drafts=True)) if self.draft else ()
        if self.draft and sizes:
            with self.recorder.phase("draft graphs"):
                self.draft_runners = make_draft_runners(self._site(), self.draft, self.draft_kv, sizes)
                self.draft_runners.capture()

    def become_ready(self) -> None:
        with self.recorder.phase("ready"):
            self.comm.barrier()

    @torch.inference_mode()
    def forward(self, batch: ForwardBatch) -> LogitsOutput | StageState:
        """Return logits on the last pipeline stage, elsewhere the state that went to the next stage."""
        with self.device.active():
            return self.decoder.run_stage(batch, self.kv)

    def dp_batch(self, batch: ForwardBatch, peers: PeerRows | None = None) -> ForwardBatch:
        """Return the batch with all DP ranks' token counts; without `peers`, all have the same."""
        tokens = plan_dp_tokens(
            batch.num_tokens,
            "eager",
            self.parallel,
            moe_a2a_backend=self.runtime.kernels.a2a,
            peers=peers,
            dp_rank=self.comm.layout.attn_dp_rank,
            device=self.device.torch_device,
        )
        return batch.with_dp(tokens)

    def _open_groups(self) -> None:
        """Run one collective in each group, because NCCL takes its buffers at a group's first collective."""
        groups = {self.comm.layout.group(name) for name in COLLECTIVE_GROUPS}
        sizes = sorted(len(ranks) for ranks in groups if len(ranks) > 1)
        if not sizes:
            return
        for what in ("torch kernels", "nccl", *(f"nccl:{ranks}" for ranks in sizes)):
            self.device.claim(what)
        one = torch.zeros(1, device=self.device.torch_device)
        for name in COLLECTIVE_GROUPS:
            self.comm.all_reduce(one, name)

    def _free_everywhere(self) -> int:
        self.device.empty_cache()
        return self.comm.min_over(self.device.memory().free)

    def _plan_pool(self) -> PoolPlan:
        """Return the KV pool's plan, with a token count for which every pipeline stage has room."""
        asked, tokens = (self.model, self.parallel, self.runtime), self.options.kv_tokens
        free = FreeMemory(self.baseline, self._free_everywhere())
        if tokens is None and not self.device.memory().total:
            tokens = UNLIMITED_TOKENS
        if tokens is not None:
            return plan_tokens(tokens, *asked)
        most, drafts = self.options.most_tokens, int(self.draft is not None)

        def agreed(found: int) -> int:
            return self.comm.min_over(found if most is None else min(found, most))

        return plan_pool(free, self.runtime.mem_fraction_static, *asked, self.layers, drafts, agreed)

    def _facts(self) -> dict[str, Any]:
        """Return the sizes that the run's file records: KV tokens, requests, batch rows, graphs, states."""
        plan, runtime, asked = self.plan, self.runtime, (self.model, self.parallel)
        drafts, requests = int(self.draft is not None), plan.max_running_requests
        share, layers = runtime.cache.sliding_share, self.layers
        each = kv_bytes_per_token(*asked, plan.kv_dtype, layers, drafts, plan.packed, share)
        facts: dict[str, Any] = {
            "kv_bytes_per_token": round(each),
            "kv_tokens": plan.tokens,
            "max_running_requests": requests,
            "dummy_batch_rows": aligned_rows(requests, runtime.width, self.parallel),
            "decode_graphs": captured_sizes(requests, self.parallel, runtime),
        }
        if plan.states is not None:
            facts |= {"states": plan.states.slots, "state_bytes": state_bytes(*asked, runtime)}
        return facts

    def _make_dispatcher(self) -> Dispatcher | None:
        """Make FlashInfer's all-to-all and its workspace, in a phase of its own before the weights."""
        if self.model.moe is None or self.runtime.kernels.a2a != "flashinfer":
            return None
        target = self.device.torch_device
        with self.recorder.phase("moe dispatcher"):
            dtype = make_build(self.model, self.runtime, self.comm, target).dtype
            return make_dispatcher(self.model, self.runtime, self.comm, dtype, target)

    def _load_kernels(self) -> None:
        """Count the memory of kernel modules, which the first forward loads."""
        if not self.kernels_loaded:
            self.device.claim("kernels")
            self.kernels_loaded = True

    def _captured(self, sizes: tuple[int, ...]) -> tuple[int, ...]:
        if sizes:
            self.device.empty_cache()
        return sizes

    def _site(self) -> CaptureSite:
        return CaptureSite(
            device=self.device,
            parallel=self.parallel,
            runtime=self.runtime,
            comm=self.comm,
            context_length=self.context_length,
            pool=self.graph_pool,
            ascending=self.options.graphs_ascending,
        )
