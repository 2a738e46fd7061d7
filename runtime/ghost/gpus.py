"""The table of GPUs that the ghost can stand for: each number with its source, and which ones are guesses."""

from dataclasses import dataclass
from functools import cache
from pathlib import Path

from runtime.toml import tomllib

_TABLE = Path(__file__).with_name("gpus.toml")


@dataclass(frozen=True)
class Number:
    """A number. `source` says who measured or published it or, for a guess, why it is likely."""

    value: int
    source: str
    is_guess: bool


@dataclass(frozen=True)
class Gpu:
    """A GPU. `key` is its name for --gpu, `name` the driver's name."""

    key: str
    name: str
    numbers: dict[str, Number]

    @property
    def total_bytes(self) -> int:
        """Device memory as cudaMemGetInfo reports it."""
        return self.numbers["total"].value

    @property
    def arch(self) -> str:
        """The compute capability as FlashInfer and nvcc write it: 90 for an H200, 103 for a B300."""
        return f"{self.numbers['major'].value}{self.numbers['minor'].value}"

    @property
    def guesses(self) -> tuple[str, ...]:
        return tuple(key for key, number in sorted(self.numbers.items()) if number.is_guess)

    def row(self) -> str:
        """The value of GHOST_ROW, which the C libraries read."""
        pairs = [("name", self.name), *((key, str(one.value)) for key, one in self.numbers.items())]
        return ";".join(f"{key}={value}" for key, value in [*pairs, ("guess", ",".join(self.guesses))])


@cache
def gpus() -> dict[str, Gpu]:
    """Return every GPU of the table by its key."""
    return {key: _gpu(key, entry) for key, entry in tomllib.loads(_TABLE.read_text("utf-8")).items()}


def find(name: str) -> Gpu | None:
    """Return the GPU with this key or driver's name, ignoring case, spaces and dashes; None if unknown."""
    wanted = _letters(name)
    return next((gpu for gpu in gpus().values() if wanted in (_letters(gpu.key), _letters(gpu.name))), None)


def _letters(name: str) -> str:
    return "".join(letter for letter in name.lower() if letter.isalnum())


def _gpu(key: str, entry: dict[str, dict[str, dict[str, int]]]) -> Gpu:
    numbers = {
        name: Number(value, source, kind == "guess")
        for kind in ("known", "guess")
        for source, values in entry.get(kind, {}).items()
        for name, value in values.items()
    }
    return Gpu(key, str(entry["name"]), numbers)
