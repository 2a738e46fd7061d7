"""A deployment as JSON and back: what plans print and manifests keep."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from runtime.server.errors import ConfigError
from sgl_tune.deployment.deployment import Deployment, Inputs, deploy
from sgl_tune.deployment.models import checked
from sgl_tune.errors import UsageError
from sgl_tune.records import WrongMember, from_plain, given_members


def deployment_to_json(deployment: Deployment) -> dict[str, Any]:
    """What it follows from: a later sgl-tune resolves it again."""
    return {"model_path": deployment.model_path, **given_members(deployment.inputs)}


def deployment_from_json(data: Mapping[str, Any], where: str) -> Deployment:
    """`where` names the file in errors."""
    try:
        inputs = from_plain(Inputs, data, "deployment")
        checked(inputs.checkpoint, where)
        return deploy(inputs)
    except (ConfigError, WrongMember) as error:
        raise UsageError(
            f"{where}: {error}", "give the deployment by flags, or warm the cache again"
        ) from error
