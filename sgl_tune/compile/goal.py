"""What to compile and for which server, from the records of its own start."""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from runtime.record.record import Record
from runtime.sglang.releases import request_modules
from runtime.sglang.server_process import ghost_for
from sgl_tune.asking.kept import cache_folder
from sgl_tune.deployment.launch import launch_of
from sgl_tune.recorded.asked import Asked
from sgl_tune.recorded.plan import RecordedPlan
from sgl_tune.stores.places import variables
from sgl_tune.stores.rows import BY_ID, CONFIGS

_FLASHINFER = "flashinfer"
_OTHER_SERVERS = ("grpc_mode", "smg_grpc_mode", "encoder_only", "use_ray")


@dataclass(frozen=True, slots=True)
class Module:
    """One of FlashInfer's compiled modules. `maker`: FlashInfer's function, as in a record. A
    string in `arguments` that names a dtype means torch's dtype."""

    name: str
    maker: str
    arguments: tuple[Any, ...] = ()


@dataclass(frozen=True, slots=True)
class Modules:
    """FlashInfer's modules of a start. `unknown`: modules that it loads and whose build was not seen."""

    known: tuple[Module, ...]
    unknown: tuple[str, ...]

    def to_json(self) -> dict[str, Any]:
        known = [{"name": one.name, "maker": one.maker} for one in self.known]
        return {"modules": known, "unknown": list(self.unknown)}


@dataclass(frozen=True)
class Goal:
    """The server to compile for. `python`, `words`, `environment`: its own start. `ghost`: variables with
    which its libraries can be imported without a GPU."""

    name: str
    cache_dir: Path
    arch: str
    python: Path
    ghost: Mapping[str, str]
    versions: Mapping[str, str]
    modules: Modules
    arguments: Mapping[str, Any]
    words: tuple[str, ...]
    environment: Mapping[str, str]
    is_contained: bool
    tunes: bool

    @property
    def sglang(self) -> str | None:
        return self.versions.get("sglang")

    @property
    def variables_while_filling(self) -> dict[str, str]:
        """Return the variables with which tuning and starting compile into the root."""
        there = [CONFIGS] if (self.cache_dir / BY_ID[CONFIGS].folder).is_dir() else []
        return variables(self.sglang, str(self.cache_dir.absolute()), there)[0]

    @property
    def ranks(self) -> int:
        return int(self.arguments.get("tp_size") or 1) * int(self.arguments.get("pp_size") or 1)

    @property
    def is_alone(self) -> str | None:
        """Return why its start is no complete server of one machine, or None if it is."""
        if int(self.arguments.get("nnodes") or 1) > 1:
            return "its ranks are on several nodes"
        mode = self.arguments.get("disaggregation_mode")
        if mode not in (None, "", "null"):
            return f"it only does the {mode} of a pair of servers"
        odd = next((name for name in _OTHER_SERVERS if self.arguments.get(name)), None)
        if odd is not None:
            return f"whether a server with --{odd.replace('_', '-')} is ready cannot be seen"
        return "its command starts a container: run it in the image" if self.is_contained else None


def goal_of(asked: Asked, plan: RecordedPlan, command: Sequence[str]) -> Goal:
    question, first = asked.question, plan.records[0]
    return Goal(
        name=asked.whose.name,
        cache_dir=asked.whose.cache_dir,
        arch=f"sm{question.gpu.arch}",
        python=question.server.python,
        ghost=ghost_for(question.server.folders, cache_folder(), question.gpu).environment(),
        versions=first.asked.versions,
        modules=modules_of(plan.records),
        arguments=first.arguments,
        words=asked.whose.argv,
        environment=question.environment,
        is_contained=bool(command) and launch_of(command).container is not None,
        tunes=bool(plan.all_caches),
    )


def modules_of(records: Sequence[Record]) -> Modules:
    """Return FlashInfer's modules that these ranks load at their start or with the first requests."""
    known, unknown = dict[str, Module](), dict[str, None]()
    for name, maker, arguments in _loaded(records):
        if maker:
            known.setdefault(name, Module(name, maker, arguments))
        else:
            unknown[name] = None
    return Modules(tuple(known.values()), tuple(name for name in unknown if name not in known))


def _loaded(records: Sequence[Record]) -> Iterator[tuple[str, str, tuple[Any, ...]]]:
    for record in records:
        for module in record.modules:
            if module.library == _FLASHINFER:
                yield module.name, module.maker, module.arguments
        for name, maker in request_modules(record.arguments):
            yield name, maker, ()
