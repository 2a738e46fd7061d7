"""A deployment as JSON and back: what plans print and manifests keep."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from runtime.server.errors import ConfigError
from sgl_tune.deployment.deployment import Deployment
from sgl_tune.errors import UsageError
from sgl_tune.records import WrongMember, from_plain, to_plain


def deployment_to_json(deployment: Deployment) -> dict[str, Any]:
    return to_plain(deployment)


def deployment_from_json(data: Mapping[str, Any], where: str) -> Deployment:
    """`where` names the file in errors."""
    try:
        return from_plain(Deployment, data, "deployment")
    except (ConfigError, WrongMember) as error:
        raise UsageError(
            f"{where}: {error}", "give the deployment by flags, or warm the cache again"
        ) from error
