"""Read a model's config.json as the core understands it."""

from __future__ import annotations

from collections.abc import Mapping
from contextlib import suppress
from dataclasses import dataclass

from runtime.models.known import model_config
from runtime.record.checked import WrongMember, from_plain, to_plain
from runtime.server.checkpoint import Checkpoint
from runtime.server.config import ModelConfig
from runtime.server.errors import ConfigError, UnknownModel, Unsupported
from sgl_tune.deployment.model_files import Sought, find_files
from sgl_tune.errors import UsageError


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
