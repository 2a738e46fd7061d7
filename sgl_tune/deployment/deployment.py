"""One deployment: a server, the model it serves as far as its layers are known, and where its cache lies."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

from runtime.server.asked import Asked
from runtime.server.call_rules import runs_by_triton
from runtime.server.checkpoint import Checkpoint
from runtime.server.class_releases import of_transformers
from runtime.server.classes import is_guessed
from runtime.server.config import ModelConfig, RuntimeConfig
from runtime.server.decoders.as_transformers import as_transformers
from runtime.server.decoders.gemma import EMBEDDING
from runtime.server.embedders import is_followed, takes_embedding
from runtime.server.encoders.place import placed
from runtime.server.errors import UnknownModel, Unsupported
from runtime.server.gpus import GpuModel
from runtime.server.own_draft import OwnDraft, has_own_draft, own_draft
from runtime.server.own_layer import has_plain_layer, otherwise, own_layer
from runtime.server.parallel import check_stages
from runtime.server.parallel_config import ParallelConfig
from runtime.server.placement import with_copies
from runtime.server.releases import release_named
from runtime.server.resolve import resolve
from runtime.server.shape import Server
from runtime.server.sizing import has_window_pool
from runtime.server.uncounted import uncounted, uncounted_choices, uncounted_of_draft
from runtime.server.unserved import Unserved, unserved
from runtime.server.windows import bounds_windows
from sgl_tune.deployment.dropped import drops
from sgl_tune.deployment.followed import uncounted_flags, unfollowed
from sgl_tune.deployment.launch import Launch
from sgl_tune.deployment.unknown import unknown_versions


@dataclass(frozen=True, slots=True)
class Inputs:
    """All that a deployment follows from, and what a manifest keeps of it. `notes` says what was assumed,
    `warnings` what is doubtful, `not_modelled` which flags may change memory or entries without a rule."""

    name: str
    asked: Asked
    checkpoint: Checkpoint
    gpu: GpuModel
    sglang_version: str
    flashinfer_version: str
    cache_dir: Path
    draft_checkpoint: Checkpoint | None = None
    environ: Mapping[str, str] = field(default_factory=dict, hash=False)
    dist_init_addr: str | None = None
    not_modelled: tuple[str, ...] = ()
    notes: tuple[str, ...] = ()
    warnings: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True)
class Shape:
    """A model's layers, or why they are not known here. `read`: what its file says of them, whether or not
    this server is known to run them; `plans`: that they look up what the file says is known."""

    model: ModelConfig | None
    unknown: str = ""
    read: ModelConfig | None = None
    plans: bool = False

    @classmethod
    def of(cls, checkpoint: Checkpoint, method: str | None) -> Shape:
        """As `method` reads its weights."""
        try:
            model = checkpoint.read_by(method).model_config()
            return cls(model, read=model)
        except Unsupported as error:
            return cls(None, error.message)

    @property
    def as_read(self) -> Shape:
        return Shape(self.read, self.unknown, self.read)

    def unless(self, found: Unserved | None) -> Shape:
        return self if found is None else Shape(None, found.why, self.read, found.plans)


@dataclass(frozen=True, slots=True)
class Deployment:
    """`launch`: the server command that it was given by, where it was."""

    inputs: Inputs
    server: Server
    shape: Shape
    draft_shape: Shape | None = None
    launch: Launch | None = field(default=None, compare=False)

    @property
    def name(self) -> str:
        return self.inputs.name

    @property
    def model_path(self) -> str:
        return self.inputs.asked.model_path

    @property
    def model(self) -> ModelConfig:
        """Of a family that this runtime can build; any other has a key and rank files, and no entries."""
        if self.shape.model is None:
            raise UnknownModel(f"{self.model_path}: {self.shape.unknown}", "its key and rank files are known")
        model = self.shape.model
        if model.encoder is None:
            return model
        here = model.encoder.of_release(self.server.release.number)
        return replace(model, encoder=placed(here, self.server.encoder))

    @property
    def of_lookups(self) -> Deployment:
        """Where no more than its lookups is known, as one whose layers are."""
        return replace(self, shape=self.shape.as_read) if self.shape.plans else self

    @property
    def parallel(self) -> ParallelConfig:
        return self.server.parallel

    @property
    def runtime(self) -> RuntimeConfig:
        runtime, model = self.server.runtime, self.shape.model
        if model is not None and runs_by_triton(model):
            return replace(runtime, moe_runner_backend="triton", served_by="triton")
        return runtime

    @property
    def sglang_version(self) -> str:
        return self.inputs.sglang_version

    @property
    def flashinfer_version(self) -> str:
        return self.inputs.flashinfer_version

    @property
    def arch(self) -> str:
        return self.inputs.gpu.arch

    @property
    def cache_dir(self) -> Path:
        return self.inputs.cache_dir

    @property
    def notes(self) -> tuple[str, ...]:
        return self.inputs.notes

    @property
    def warnings(self) -> tuple[str, ...]:
        return self.inputs.warnings

    @property
    def not_modelled(self) -> str:
        """For the line of a verdict; nothing where every flag is followed, and every matrix read."""
        flags = self._unmodelled
        said = [f"not counting {', '.join(flags)}: not modelled"] if flags else []
        return "; ".join([*said, *drops(self.inputs.checkpoint, self.server), *unknown_versions(self.inputs)])

    @property
    def _unmodelled(self) -> tuple[str, ...]:
        asked, architecture = self.inputs.asked, self.inputs.checkpoint.architecture
        may = asked.is_embedding and takes_embedding(architecture, self.server.release.number)
        embeds = ("--is-embedding",) if may and not is_followed(architecture, asked) else ()
        model = self.shape.model
        said = unfollowed(self.inputs.not_modelled, model, self.server)
        return (*said, *embeds)

    @property
    def guessed(self) -> str:
        """For the line of a verdict that rests on a key; nothing where its class is known."""
        model, release = self.inputs.checkpoint, self.server.release
        if not is_guessed(model, release):
            return ""
        return f"its key is a guess: SGLang {release.version} knows no model_type {model.model_type}"

    @property
    def own_draft(self) -> OwnDraft | str:
        """A draft that is a model of its own, as a rank holds it; or why nobody here knows."""
        shape, server = self.draft_shape, self.server
        if shape is None:
            return ""
        if not has_own_draft(server):
            found = self.own_layer
            file = self.inputs.draft_checkpoint or self.inputs.checkpoint
            return found if isinstance(found, str) else otherwise(server, file) or ""
        if shape.model is None:
            return shape.unknown
        checkpoint = self.inputs.draft_checkpoint or self.inputs.checkpoint
        try:
            layers = checkpoint.whole("num_nextn_predict_layers", shape.model.num_layers)
            return own_draft(server, self.model, shape.model, layers)
        except Unsupported as error:
            return error.message

    @property
    def own_layer(self) -> ModelConfig | str:
        """The layer of its checkpoint that drafts, as a model by itself; or why that is not what does."""
        target, shape = self.shape.read, self.draft_shape
        if target is None or shape is None or shape.model is None:
            return self.shape.unknown if shape is None or target is None else shape.unknown
        own = self.inputs.draft_checkpoint
        file = own or self.inputs.checkpoint
        try:
            return own_layer(self.server, file, target, target if own is None else shape.model)
        except Unsupported as error:
            return error.message

    @property
    def not_counted(self) -> str:
        """For the line of a report on memory: what flags and images take that is not known."""
        model = self.shape.model
        hidden = None if model is None else model.hidden_size
        draft = "" if model is None else self.own_draft
        told = dict.fromkeys(uncounted_flags(self._unmodelled, model, self.server))
        told |= dict.fromkeys(uncounted(self.server, hidden, draft if isinstance(draft, str) else ""))
        asked, rules = self.server.max_running_requests, self.server.states
        bounds = bounds_windows(self.server.release, asked, rules)
        if model is not None and bounds and has_window_pool(model):
            told["how far --max-running-requests bounds the pool of layers behind a window"] = None
        if model is not None:
            told |= dict.fromkeys(uncounted_choices(self.server, model))
        if isinstance(draft, OwnDraft):
            told |= dict.fromkeys(uncounted_of_draft(self.server, draft))
        if (
            model is not None
            and model.model_type == EMBEDDING
            and self.inputs.checkpoint.dense_files.modules is None
        ):
            told[
                "matrices that sentence-transformers tells in modules.json: there is none beside config.json"
            ] = None
        encoder = None if model is None else self.model.encoder
        if encoder is not None:
            told["what images and sound take" if encoder.hears else "what images take"] = None
            told |= dict.fromkeys(encoder.beside)
            if encoder.is_quantized and self.quantization is not None:
                told["the encoder's quantization"] = None
        said = [f"not counting {', '.join(told)}: not modelled"] if told else []
        if self.server.draft is not None and isinstance(draft, OwnDraft):
            said.append(f"the draft {self.server.draft.model_path} is predicted, and was never measured")
        return "; ".join([*said, *unknown_versions(self.inputs)])

    @property
    def quantization(self) -> str | None:
        """How the weights are quantized. The key holds the server argument, `server.quantization`."""
        return self.server.weights_quantization

    @property
    def replicas(self) -> int:
        """Whole servers that plain data parallelism starts; DP attention is one server."""
        return 1 if self.parallel.enable_dp_attention else self.parallel.dp

    @property
    def draft_deployment(self) -> Deployment | None:
        """The draft worker as a deployment of its own, on the same ranks."""
        if self.server.draft is None or self.draft_shape is None:
            return None
        server, shape, own = self.server.as_draft(), self.draft_shape, self.own_layer
        if isinstance(own, ModelConfig):
            if own.checkpoint_quantization is None and has_plain_layer(self.shape.read or own, self.runtime):
                server = replace(server, quantization=None, model_quantization=None)
            shape = Shape(own, read=own)
        return replace(self, server=server, shape=shape, draft_shape=None)

    def asking(self, **changes: Any) -> Deployment:
        """The same start with other arguments, by SGLang's names: everything that follows from them too."""
        return deploy(replace(self.inputs, asked=replace(self.inputs.asked, **changes)))


def deploy(inputs: Inputs) -> Deployment:
    server = server_of(inputs)
    shape = Shape.of(inputs.checkpoint, server.weights_quantization)
    if shape.model is not None:
        check_stages(shape.model.num_layers, server.parallel)
        model, architecture = shape.model, inputs.checkpoint.architecture
        if of_transformers(architecture, server.release.number, server.asked):
            model = as_transformers(model, inputs.checkpoint.hf)
        model = with_copies(model, server)
        shape = Shape(model, read=model).unless(unserved(model, server, architecture))
    drafts = None
    if server.draft is not None:
        drafts = Shape.of(inputs.draft_checkpoint or inputs.checkpoint, server.draft.quantization)
    return Deployment(inputs, server, shape, drafts)


def server_of(inputs: Inputs) -> Server:
    server = resolve(
        inputs.asked,
        inputs.checkpoint,
        inputs.draft_checkpoint,
        inputs.gpu,
        release_named(inputs.sglang_version).release,
        inputs.environ,
    )
    server.parallel  # noqa: B018  its own checks: sizes that divide each other
    return server
