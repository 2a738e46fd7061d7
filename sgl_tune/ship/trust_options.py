"""Whom to believe, spelled alike wherever a bundle is made or lands."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

from sgl_tune.cli.parameters import Option
from sgl_tune.errors import UsageError
from sgl_tune.ship.policy import Policy, read_policy
from sgl_tune.ship.trust import ALLOW

SignOption = Annotated[
    Path | None,
    Option(
        "--sign",
        metavar="KEY",
        help="Sign it with this private key, as `cosign sign-blob` does: FILE.sig. Its password comes from"
        " COSIGN_PASSWORD, or is asked for.",
    ),
]
TrustOption = Annotated[
    Path | None,
    Option(
        "--trust",
        metavar="KEY|POLICY",
        help="Land it only if it is signed by this public key, or as a file of keys and limits says.",
    ),
]
AllowUnsignedCodeOption = Annotated[
    bool,
    Option(ALLOW, help="Land code that nobody vouches for: whoever could write it runs it here."),
]


def policy_of(trust: Path | None, allow_unsigned_code: bool = False) -> Policy | None:
    """Read before anything is fetched."""
    if trust is None:
        return None
    if allow_unsigned_code:
        raise UsageError(
            f"--trust and {ALLOW} contradict each other", 'a policy may say unsigned = "anything"'
        )
    return read_policy(trust)
