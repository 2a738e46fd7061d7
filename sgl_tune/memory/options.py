"""The options of mem-report, as typed. A log is judged without importing the code of predictions."""

from dataclasses import dataclass
from pathlib import Path

from runtime.server.bounds import REQUESTS
from sgl_tune.asking.whom import ByServer
from sgl_tune.deployment.options import ServerFlags
from sgl_tune.errors import UsageError
from sgl_tune.server_log.verdict import Outcome
from sgl_tune.units import parse_size


@dataclass(frozen=True, slots=True)
class MemoryOptions:
    """The options that say what to report, as typed."""

    by: ByServer
    gpu_memory: str | None = None
    taken: str | None = None
    ranks: str = "distinct"
    what_if: tuple[str, ...] = ()
    sweep: str | None = None
    measure: bool = False
    out: Path | None = None
    from_run: Path | None = None
    from_log: Outcome | None = None
    snapshot: Path | None = None
    fold: bool = True

    @property
    def is_log_alone(self) -> bool:
        """Whether only a log is asked about, without a prediction."""
        alone = MemoryOptions(ByServer(ServerFlags()), from_log=self.from_log)
        return self.from_log is not None and self == alone


def is_of_a_run(path: Path) -> bool:
    """Whether `--measure --out` wrote the file. Otherwise it is a server's log."""
    try:
        return path.is_file() and path.open("rb").read(8) == b'{"event"'
    except OSError:
        return False


def check_alone(asked: MemoryOptions) -> None:
    """Refuse --fit together with options that ask another question."""
    others = {
        "--measure": asked.measure,
        "--log": asked.from_run or asked.from_log,
        "--sweep": asked.sweep,
        "--what-if": asked.what_if,
        "--snapshot": asked.snapshot,
    }
    for name, value in others.items():
        if value:
            raise UsageError(f"--fit and {name} are two questions", "ask one, then the other")


@dataclass(frozen=True, slots=True)
class Goals:
    """What the start must leave: bytes free at the peak, and a KV cache for requests of a length."""

    free_bytes: int = 0
    requests: int | None = None
    context_length: int | None = None

    def tokens(self, ranks: int) -> int:
        """Return the KV tokens each of `ranks` must hold: its share of all requests, each of full length."""
        return (self.context_length or 1) * -(-(self.requests or 1) // ranks)

    def __str__(self) -> str:
        requests = f"{self.requests or 1:,} request{'s' if (self.requests or 1) > 1 else ''}"
        return f"{requests} of {self.context_length:,} tokens" if self.context_length else requests

    @property
    def way_out(self) -> str:
        """Return the advice to print if nothing fits."""
        given = {"--free": self.free_bytes, "--requests": self.requests}
        asked = [name for name, value in given.items() if value]
        less = f"ask for less {' and '.join(asked)}, or use " if asked else "use "
        return f"{less}more GPUs (--tp), a larger one (--gpu), or fewer bytes per weight (--quantization)"


@dataclass(frozen=True, slots=True)
class FitOptions:
    """The options of a fit, as typed."""

    fit: bool = False
    free: str | None = None
    requests: int | None = None

    @property
    def are_given(self) -> bool:
        if not self.fit and (self.free is not None or self.requests is not None):
            given = "--free" if self.free is not None else "--requests"
            raise UsageError(f"{given} is a goal of --fit", "add --fit")
        return self.fit

    def goals(self, context_length: int | None) -> Goals:
        if self.requests is not None and not REQUESTS.least <= self.requests <= REQUESTS.most:
            raise UsageError(f"--requests {self.requests}", f"{REQUESTS.least} to {REQUESTS.most:,}")
        return Goals(parse_size(self.free, "--free") if self.free else 0, self.requests, context_length)


@dataclass(frozen=True, slots=True)
class ShowOptions:
    """What is written beside the answer."""

    html: Path | None = None
    record: Path | None = None
    verbose: bool = False
