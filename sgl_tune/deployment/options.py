"""SGLang's own flags, defined once for all commands that plan, check or predict a deployment. Flags, a
pasted server command, `sgl-tune.toml` and a manifest are all read into one record, `ServerFlags`. A field
is None if nobody set it: defaults are SGLang's and are resolved in `deployment`."""

from __future__ import annotations

import re
from collections.abc import Callable
from dataclasses import dataclass, field, fields, replace
from pathlib import Path
from typing import Annotated, Any

from runtime.server.backends import BACKENDS
from runtime.server.bounds import ASKED, check_size
from runtime.server.errors import ConfigError
from sgl_tune.cli.parameters import Argument, Option
from sgl_tune.deployment.versions import gpu_names
from sgl_tune.errors import UsageError

PROJECT_FILE = "sgl-tune.toml"
Offer = Callable[[], list[str]]  # values for completion, from a fast source
_Text = str | None
_Number = int | None
_QUANTIZATIONS = ["fp8", "modelopt_fp8", "modelopt_fp4", "mxfp4"]
_ARCHITECTURE = re.compile(r"sm\d+|cpu")
# Our names of arguments -> SGLang's.
LONG = {"tp": "tp_size", "dp": "dp_size", "pp": "pp_size", "ep": "ep_size"}


def _models() -> list[str]:
    folder = Path(__file__).parents[1] / "presets" / "models"
    return sorted(file.stem for file in folder.glob("*.json"))


def _server(names: str, help: str, offers: Offer | None = None, metavar: str | None = None) -> Any:
    """Return a flag of SGLang's. `--help-server` lists it, and a command's own help does not."""
    told: dict[str, Any] = {"hidden": True, "autocompletion": offers}
    return Option(*names.split(), help=help, metavar=metavar, **told)


def _target(name: str, help: str, metavar: str, offers: Offer | None = None) -> Any:
    return Option(name, help=help, metavar=metavar, autocompletion=offers)


TargetOption = Annotated[
    Path | None,
    Option("--target", metavar="ENV.JSON", help="The serving machine, described by its `sgl-tune env`."),
]
ServerCommand = Annotated[
    list[str] | None,
    Argument(
        metavar="[-- SERVER COMMAND]",
        help="After --: the command that starts the server, read as SGLang reads it.",
    ),
]


@dataclass(frozen=True, slots=True)
class TargetFlags:
    """The target's GPU, versions and files. `--gpu sm90` names a GPU by its architecture alone."""

    gpu: Annotated[_Text, _target("--gpu", "Default: this machine's.", "h200|b200|sm90|..", gpu_names)] = None
    model_config: Annotated[
        _Text, _target("--model-config", "The model's config.json, or a preset.", "FILE|PRESET", _models)
    ] = None
    cache_dir: Annotated[
        _Text, _target("--cache-dir", "Default: $SGLANG_CACHE_DIR or ~/.cache/sglang.", "DIR")
    ] = None
    sglang_version: _Text = None
    flashinfer_version: _Text = None
    arch: _Text = None

    def __post_init__(self) -> None:
        if self.gpu is not None and _ARCHITECTURE.fullmatch(self.gpu):
            object.__setattr__(self, "arch", self.gpu)
            object.__setattr__(self, "gpu", None)


TARGET_FIELDS = frozenset(one.name for one in fields(TargetFlags))


@dataclass(frozen=True, slots=True)
class ServerFlags:
    """The flags that were set, unchanged. `more`: further flags of a server command, by SGLang's names."""

    model_path: Annotated[
        _Text, _server("--model-path --model", "Model, as typed at the server.", _models, "PATH|ID")
    ] = None
    tp: Annotated[_Number, _server("--tp-size --tp --tensor-parallel-size", "Tensor-parallel ranks.")] = None
    dp: Annotated[_Number, _server("--dp-size --dp --data-parallel-size", "Data-parallel ranks.")] = None
    pp: Annotated[_Number, _server("--pp-size --pp --pipeline-parallel-size", "Pipeline stages.")] = None
    ep: Annotated[_Number, _server("--ep-size --ep --expert-parallel-size", "Expert-parallel ranks.")] = None
    enable_dp_attention: Annotated[bool | None, _server("--enable-dp-attention", "DP attention.")] = None
    quantization: Annotated[
        _Text, _server("--quantization", "Used verbatim when set.", _QUANTIZATIONS.copy)
    ] = None
    moe_runner_backend: Annotated[
        _Text, _server("--moe-runner-backend", "Used verbatim when set.", lambda: [*BACKENDS])
    ] = None
    mem_fraction_static: Annotated[
        float | None, _server("--mem-fraction-static", "Share for weights and KV cache.")
    ] = None
    chunked_prefill_size: Annotated[_Number, _server("--chunked-prefill-size", "Tokens per chunk.")] = None
    max_running_requests: Annotated[_Number, _server("--max-running-requests", "Requests at once.")] = None
    context_length: Annotated[_Number, _server("--context-length", "Default: the model's.")] = None
    more: dict[str, Any] = field(default_factory=dict, hash=False)
    target: TargetFlags = TargetFlags()

    def __post_init__(self) -> None:
        try:
            for name, value in self.given().items():
                if bound := ASKED.get(LONG.get(name, name)):
                    check_size("--" + name.replace("_", "-"), value, bound)
        except ConfigError as error:
            raise UsageError(error.message) from None

    @classmethod
    def of(cls, **given: Any) -> ServerFlags:
        """Return flags from keywords: own fields, the target's fields, or arguments by SGLang's names."""
        return cls().changed(**given)

    def changed(self, **given: Any) -> ServerFlags:
        target = {name: given.pop(name) for name in TARGET_FIELDS & given.keys()}
        own = {name: given.pop(name) for name in OWN_FIELDS & given.keys()}
        more = {name: value for name, value in {**self.more, **given}.items() if value is not None}
        return replace(self, **own, more=more, target=replace(self.target, **target))

    def over(self, others: ServerFlags) -> ServerFlags:
        """Return these flags; values that they leave out come from `others`."""
        aimed = {name: value for name in TARGET_FIELDS if (value := getattr(self.target, name)) is not None}
        return others.changed(**self.given(), **aimed)

    def given(self) -> dict[str, Any]:
        """Return the server's flags that were set."""
        own = {name: value for name in OWN_FIELDS if (value := getattr(self, name)) is not None}
        return {**own, **self.more}


OWN_FIELDS = dict.fromkeys(
    one.name for one in fields(ServerFlags) if one.name not in ("more", "target")
).keys()


def file_and_name(named: str | None, folder: Path | None = None) -> tuple[Path, str | None]:
    """Return the project file and the deployment's name that `FILE` or `FILE:NAME` means."""
    path, _, name = (named or PROJECT_FILE).partition(".toml:")
    return (folder or Path.cwd()) / (f"{path}.toml" if name else path), name or None
