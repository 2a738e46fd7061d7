"""What a verdict on memory says of its server besides: that it never starts, and what is not counted."""

from __future__ import annotations

from sgl_tune.deployment.deployment import Deployment
from sgl_tune.keys.starts import never_starts


def caveats(deployment: Deployment) -> str:
    ends = never_starts(deployment)
    said = f"this server does not start: {ends}" if ends else ""
    return "; ".join(filter(None, (said, deployment.not_counted)))
