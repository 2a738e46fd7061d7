"""Choose the deployments of a command: from its flags, a pasted command, or `sgl-tune.toml`."""

import os
from collections.abc import Mapping
from types import MappingProxyType
from typing import Any

from runtime.server.gpus import GpuModel
from sgl_tune.deployment.deployment import Deployment
from sgl_tune.deployment.project_file import Meant
from sgl_tune.deployment.resolve import Place, resolve_deployment


def deployment_of(
    one: Meant,
    environ: Mapping[str, str] | None = None,
    changes: Mapping[str, Any] = MappingProxyType({}),
    gpu: GpuModel | None = None,
) -> Deployment:
    """Resolve one server. `changes`: flags that replace others, as for the same server started
    differently. `gpu`: the GPU, if already chosen."""
    place = Place(name=one.name, environ=os.environ if environ is None else environ, gpu=gpu)
    if one.command:
        from sgl_tune.deployment.pasted_command import from_command

        return from_command(one.command, one.flags, place, changes)
    return resolve_deployment(one.flags.changed(**changes), place)
