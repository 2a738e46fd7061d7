"""A server within a container: which of its paths lie on this machine, and which do not."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, replace

from sgl_tune.deployment.cache_dir import default_cache_dir
from sgl_tune.deployment.container import Container
from sgl_tune.deployment.hub_cache import HUB_ENVIRONMENT
from sgl_tune.deployment.resolve import Target


@dataclass(frozen=True, slots=True)
class Placed:
    target: Target
    environ: Mapping[str, str]
    notes: tuple[str, ...]
    warnings: tuple[str, ...]


def placed_in(container: Container, target: Target, model_path: str, environ: Mapping[str, str]) -> Placed:
    """The key keeps the model's path as the container has it; its config.json is read outside."""
    notes = [container.assumed] if container.assumed else []
    notes += [f"not read: {unread}" for unread in container.unread]
    warnings: list[str] = []
    model = container.outside(model_path) if model_path.startswith("/") else None
    if model is not None:
        notes.append(f"{model_path} in the container is {model} here")
    folder = environ.get("SGLANG_CACHE_DIR") or container.cache_folder
    cache = container.outside(folder)
    if cache is not None:
        notes.append(f"{folder} in the container is {cache} here")
    elif target.cache_dir is None:
        warnings += _unmounted(container, folder)
    hub = {
        name: container.outside(environ[name]) or environ[name] for name in HUB_ENVIRONMENT if name in environ
    }
    target = replace(
        target, cache_dir=target.cache_dir or cache or str(default_cache_dir()), model_files=model
    )
    return Placed(target, {**environ, **hub}, tuple(notes), tuple(warnings))


def _unmounted(container: Container, folder: str) -> Iterator[str]:
    if container.mount_of(folder) is not None:
        yield f"{folder} in the container is a volume: name its folder here with --cache-dir"
    else:
        yield (
            f"the container mounts nothing at {folder}, where its server looks for caches: "
            f"mount {default_cache_dir()} there"
        )
