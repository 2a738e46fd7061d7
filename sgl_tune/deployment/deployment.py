"""One deployment: a server, the model it serves, and the folder of its cache; and a model's config.json as
the core understands it."""

from collections.abc import Mapping
from contextlib import suppress
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

from runtime.flashinfer.versions import doubt_of
from runtime.models.known import family_of, model_config
from runtime.record.checked import WrongMember, from_plain, given_members, to_plain
from runtime.server.asked import Asked
from runtime.server.checkpoint import Checkpoint
from runtime.server.config import ModelConfig, RuntimeConfig
from runtime.server.errors import ConfigError, UnknownModel, Unsupported
from runtime.server.gpus import GpuModel
from runtime.server.parallel import ParallelConfig
from runtime.server.resolve import check_model, resolve
from runtime.server.shape import Server
from runtime.server.sizes.own_layer import has_plain_layer, own_layer
from runtime.sglang.releases import Release, release_named
from sgl_tune.deployment.model_files import Sought, find_files
from sgl_tune.errors import UsageError

if TYPE_CHECKING:
    from sgl_tune.deployment.launch import Launch


@dataclass(frozen=True, slots=True)
class FoundModel:
    checkpoint: Checkpoint
    source: str


def find_model(sought: Sought | str, environ: Mapping[str, str]) -> FoundModel:
    found = find_files(sought, environ)
    return FoundModel(checked(Checkpoint(found.config, found.quantization), found.source), found.source)


def checked(checkpoint: Checkpoint, file: str) -> Checkpoint:
    """Check members that reading does not look at, such as a string in place of a number."""
    try:
        _ = checkpoint.context_length
        with suppress(Unsupported, UnknownModel):
            from_plain(ModelConfig, to_plain(model_config(checkpoint.quantized)), "model")
    except (ConfigError, WrongMember) as error:
        raise UsageError(f"{file}: {error}") from error
    except (TypeError, ValueError, LookupError, AttributeError, ArithmeticError, RecursionError) as error:
        why = f"{type(error).__name__}: {str(error)[:200]}"
        raise UsageError(f"{file}: not a model's config: {why}") from error
    return checkpoint


@dataclass(frozen=True, slots=True)
class Inputs:
    """Everything that determines a deployment; a manifest stores it. `notes`: what was assumed.
    `warnings`: what is doubtful. `not_followed`: flags that the core does not know."""

    name: str
    asked: Asked
    checkpoint: Checkpoint
    gpu: GpuModel
    sglang_version: str
    flashinfer_version: str
    cache_dir: Path
    dist_init_addr: str | None = None
    not_followed: tuple[str, ...] = ()
    notes: tuple[str, ...] = ()
    warnings: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True)
class Deployment:
    """A server and its model. `launch`: the server command that described them, if one did."""

    inputs: Inputs
    server: Server
    model: ModelConfig
    launch: "Launch | None" = field(default=None, compare=False)

    @property
    def name(self) -> str:
        return self.inputs.name

    @property
    def model_path(self) -> str:
        return self.inputs.asked.model_path

    @property
    def parallel(self) -> ParallelConfig:
        return self.server.parallel

    @property
    def runtime(self) -> RuntimeConfig:
        return self.server.runtime

    @property
    def release(self) -> Release:
        return release_named(self.inputs.sglang_version)

    @property
    def arch(self) -> str:
        return self.inputs.gpu.arch

    @property
    def cache_dir(self) -> Path:
        return self.inputs.cache_dir

    @property
    def not_modelled(self) -> str:
        """Return what the core does not model, for the verdict's line; "" if it models everything."""
        return "; ".join(filter(None, [self.flags_not_followed, doubt_of(self.inputs.flashinfer_version)]))

    @property
    def flags_not_followed(self) -> str | None:
        flags = ", ".join(self.inputs.not_followed)
        return f"not followed by the core: {flags}; a server answers for it: --server" if flags else None

    @property
    def quantization(self) -> str | None:
        """Return the weights' quantization. The key holds the argument instead: `server.quantization`."""
        return self.server.model_quantization

    @property
    def replicas(self) -> int:
        """Return the number of servers that plain data parallelism starts. DP attention is one server."""
        return 1 if self.parallel.enable_dp_attention else self.parallel.dp

    @property
    def draft_deployment(self) -> "Deployment | None":
        """Return the draft layer as a deployment of its own, on the same ranks, or None."""
        if self.server.draft is None:
            return None
        server = self.server.as_draft()
        if has_plain_layer(self.model):
            server = replace(server, quantization=None, model_quantization=None)
        return replace(self, server=server, model=own_layer(self.model))

    def asking(self, **changes: Any) -> "Deployment":
        """Return the deployment with other arguments, by SGLang's names, and all that follows."""
        return deploy(replace(self.inputs, asked=replace(self.inputs.asked, **changes)))


def deploy(inputs: Inputs) -> Deployment:
    """Return the deployment; raise Unsupported for anything that the core lacks."""
    server, model = server_of(inputs), model_config(inputs.checkpoint.quantized)
    check_model(model, server)
    return Deployment(inputs, server, model)


def server_of(inputs: Inputs) -> Server:
    release_named(inputs.sglang_version)
    return resolve(inputs.asked, family_of(inputs.checkpoint.hf), inputs.checkpoint, inputs.gpu)


def deployment_to_json(deployment: Deployment) -> dict[str, Any]:
    """Return what determines the deployment, as JSON. A later sgl-tune resolves it again."""
    return {"model_path": deployment.model_path, **given_members(deployment.inputs)}


def deployment_from_json(data: Mapping[str, Any], where: str) -> Deployment:
    """Return the deployment that the JSON describes. `where`: the file's name in errors."""
    try:
        inputs = from_plain(Inputs, data, "deployment")
        checked(inputs.checkpoint, where)
        return deploy(inputs)
    except (ConfigError, WrongMember) as error:
        way = "give the deployment by flags, or warm the cache again"
        raise UsageError(f"{where}: {error}", way) from error
