"""A server within a container: which of its paths lie on this machine, and which do not."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace

from sgl_tune.deployment.cache_dir import default_cache_dir
from sgl_tune.deployment.container import Container
from sgl_tune.deployment.hub_cache import HUB_ENVIRONMENT
from sgl_tune.deployment.options import ServerFlags
from sgl_tune.deployment.resolve import Place


def placed_in(container: Container, flags: ServerFlags, place: Place) -> tuple[ServerFlags, Place]:
    """The key keeps the model's path as the container has it; its config.json is read outside."""
    environ, model_path = dict(place.environ or {}), flags.model_path or ""
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
    elif flags.cache_dir is None:
        warnings += _unmounted(container, folder)
    environ |= {
        name: container.outside(environ[name]) or environ[name] for name in HUB_ENVIRONMENT if name in environ
    }
    flags = replace(
        flags,
        cache_dir=flags.cache_dir or cache or str(default_cache_dir()),
        sglang_version=container.release or flags.sglang_version,
    )
    return flags, replace(
        place,
        environ=environ,
        model_files=model,
        notes=(*place.notes, *notes),
        warnings=(*place.warnings, *warnings),
    )


def _unmounted(container: Container, folder: str) -> Iterator[str]:
    if container.mount_of(folder) is not None:
        yield f"{folder} in the container is a volume: name its folder here with --cache-dir"
    else:
        yield (
            f"the container mounts nothing at {folder}, where its server looks for caches: "
            f"mount {default_cache_dir()} there"
        )
