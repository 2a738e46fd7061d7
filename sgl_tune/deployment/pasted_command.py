"""Make a deployment of a server command that was pasted after `--`. If it starts a container, only the
mounted ones of its paths lie on this machine."""

from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Any, NamedTuple

from sgl_tune.deployment.cache_dir import default_cache_dir
from sgl_tune.deployment.container import CACHE_FOLDER, PRODUCT, Container, Mount
from sgl_tune.deployment.deployment import Deployment
from sgl_tune.deployment.flag_names import flag_names
from sgl_tune.deployment.launch import given_twice, launch_of
from sgl_tune.deployment.model_files import HUB_ENVIRONMENT
from sgl_tune.deployment.options import ServerFlags, TargetFlags
from sgl_tune.deployment.resolve import Place, resolve_deployment
from sgl_tune.deployment.server_command import DECISIVE, read_launch
from sgl_tune.errors import UsageError


def from_command(
    command: Sequence[str], beside: ServerFlags, place: Place, changes: Mapping[str, Any]
) -> Deployment:
    """Return the command's deployment. Beside a command only the target may be given by flags."""
    twice = beside.given()
    if twice:
        flag = min((flag for flag, field in flag_names().items() if field == min(twice)), key=len)
        raise given_twice(flag, command, place.name)
    launch = launch_of(list(command))
    line, container = read_launch(launch), launch.container
    notes = list(line.notes)
    if line.variables:
        notes.append(f"variables not read, which may change the start: {' '.join(line.variables)}")
    flags, target = line.flags.over(beside).changed(**changes), beside.target
    if flags.model_path is None:
        raise UsageError("the server command names no model", "add --model-path, as the server's has it")
    outside = place.environ or {}
    if container is not None:  # its model cache is usually mounted from here
        outside = {name: outside[name] for name in HUB_ENVIRONMENT if name in outside}
        gpu = container.agreed_gpu(target.gpu or (place.gpu.name if place.gpu else None))
        if not (target.arch or place.gpu or "gpu" in changes):
            flags = flags.changed(gpu=gpu)
    place = replace(
        place,
        environ={**outside, **line.environment},
        revision=line.revision,
        not_followed=(*line.unfollowed, *(told for told in line.variables if told.startswith(DECISIVE))),
        notes=tuple(notes),
    )
    if container is not None:
        flags, place = _placed_in(container, flags, place)
    return replace(resolve_deployment(flags, place), launch=launch)


def _placed_in(container: Container, flags: ServerFlags, place: Place) -> tuple[ServerFlags, Place]:
    """Return flags and place of a container's server. The key contains the container's model path;
    config.json is read at its path on this machine."""
    environ, model_path = dict(place.environ or {}), flags.model_path or ""
    around = around_server(container, flags.target, environ)
    notes = [*place.notes, *around.notes]
    model = container.outside(model_path) if model_path.startswith("/") else None
    if model is not None:
        notes.append(f"{model_path} in the container is {model} here")
    environ |= {
        name: container.outside(environ[name]) or environ[name] for name in HUB_ENVIRONMENT if name in environ
    }
    version = flags.target.sglang_version or container.release
    flags = flags.changed(cache_dir=around.cache_dir, sglang_version=version)
    warnings = (*place.warnings, *around.warnings)
    return flags, replace(place, environ=environ, model_files=model, notes=tuple(notes), warnings=warnings)


class Around(NamedTuple):
    """What a container says about its server: the folder of its caches on this machine, and notes."""

    cache_dir: str
    notes: tuple[str, ...] = ()
    warnings: tuple[str, ...] = ()


def around_server(container: Container, named: TargetFlags, environ: Mapping[str, str]) -> Around:
    """Return what the container says about its server. `environ`: the server's own environment."""
    version, release = named.sglang_version, container.release
    other = f"SGLang {version} is asked, and the image {container.image} is of SGLang {release}"
    doubts = (other,) if version and release and version != release else ()
    notes = [*_of_image(container, version), *container.assumed]
    notes += [f"not read: {unread}" for unread in container.unread]
    if container.gpu and not named.arch:
        notes.append(f"GPU {container.gpu}: the manifest's {PRODUCT} says so")
    folder = environ.get("SGLANG_CACHE_DIR") or container.cache_folder
    cache = container.outside(folder)
    if cache is not None:
        notes.append(f"{folder} in the container is {cache} here")
    if cache is not None or named.cache_dir is not None:
        return Around(named.cache_dir or str(cache), tuple(notes), doubts)
    here = str(default_cache_dir())
    held = container.elsewhere(folder)
    lost = f"{CACHE_FOLDER}{folder} is {held.where}" if held else ""
    if held and held.starts_empty:
        lost += f", empty at each start: {to_keep(held, folder)}"
    elif held:
        lost += f", which is not here, so {here} is taken instead. Where it is mounted, name its folder:"
        lost += " --cache-dir FOLDER; or ship the caches there: sgl-tune pack"
    return Around(here, tuple(notes), (*doubts, lost))


def to_keep(held: Mount, folder: str) -> str:
    """Return the advice for a cache folder that each start finds empty."""
    by_pod = "fill it by an init container (docs/init-container.md), or mount a lasting volume there"
    return by_pod if "emptyDir" in held.where else f"mount a lasting volume: -v sglang-cache:{folder}"


def _of_image(container: Container, version: str | None) -> list[str]:
    """Return notes on the release in the image's tag."""
    if not container.image or version not in (None, container.release):
        return []
    if container.release is None:
        return [f"the image {container.image} names no release of SGLang"]
    return [f"SGLang {container.release}: the image {container.image} says so"]
