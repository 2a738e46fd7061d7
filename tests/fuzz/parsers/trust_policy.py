"""A policy of `--trust`, a signature beside a bundle, and a record beside one in an object store."""

from __future__ import annotations

import hashlib
import json
from contextlib import suppress
from pathlib import Path
from random import Random

from sgl_tune.errors import CheckFailed, UsageError
from sgl_tune.ship.remote.object_name import LARGEST_RECORD, parse_record
from sgl_tune.ship.signing.policy import Contents, read_policy
from sgl_tune.ship.signing.signature import parse_signature, statement_about, statement_found
from sgl_tune.ship.signing.trust import judge, vouched
from tests.fuzz.mutate import duplicated_key, mutated, of_bytes, of_json, of_lines, of_toml
from tests.fuzz.parser import Parser
from tests.sgl_tune.running import ROOT

_DIGEST = f"sha256:{hashlib.sha256(b'a bundle').hexdigest()}"
_PEM = (ROOT / "tests/sgl_tune/ship/cosign/legacy.pub").read_bytes()
_SIGNATURE = (ROOT / "tests/sgl_tune/ship/cosign/legacy.sig").read_bytes()
_POLICIES = (
    b'unsigned = "tactics"\n[keys.release]\npublic-key = "key.pub"\nmodels = ["Qwen/*"]\nstores = ["t*"]\n',
    b'[keys.a]\npublic-key = "key.pub"\n[keys.b]\npublic-key = "key.pub"\ncache-keys = ["4a[ab]*", "?"]\n',
    _PEM,
)
_RECORD = {
    "schema_version": 1, "digest": _DIGEST, "bytes": 1000, "gpu": "NVIDIA H200", "arch": "sm90",
    "platform": "linux/amd64", "told": {"sgl-tune.code": "yes", "sgl-tune.keys": "4aae"},
}  # fmt: skip
_JSON = (json.dumps(_RECORD).encode(), statement_about(_DIGEST, "localhost/tuned"))
_CONTENTS = Contents(("Qwen/Qwen3-30B-A3B",), ("4aae",), ("tactics", "triton"))


def _make(random: Random) -> tuple[bytes, bytes, bytes]:
    policy = mutated(_POLICIES, random, of_toml, of_toml, of_bytes, of_lines)
    told = mutated(_JSON, random, of_json, of_json, duplicated_key, of_bytes)
    return policy, told, mutated((_SIGNATURE,), random, of_bytes)


def _read(made: tuple[bytes, bytes, bytes], folder: Path) -> None:
    policy, told, signature = made
    (folder / "key.pub").write_bytes(_PEM)
    (folder / "trust.toml").write_bytes(policy)
    for path in folder.iterdir():
        path.chmod(0o600)
    for parse in (
        lambda: parse_record(told[: LARGEST_RECORD + 1], "a record"),
        lambda: statement_found(signature.decode(errors="replace"), told, _DIGEST),
    ):
        with suppress(CheckFailed):
            parse()
    found = [parse_signature(signature, "a signature")]
    judge(vouched(read_policy(folder / "trust.toml"), found, _DIGEST), _CONTENTS, pulled=True)


PARSER = Parser(_make, _read, (CheckFailed, UsageError))
