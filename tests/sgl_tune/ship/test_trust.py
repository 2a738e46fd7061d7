"""Which bundles land: signed by whom, pulled or one's own, code or tactics alone."""

import hashlib
from pathlib import Path

import pytest

pytest.importorskip("cryptography")

from sgl_tune.errors import UsageError
from sgl_tune.ship.manifest import BundleManifest, PackedStore
from sgl_tune.ship.signing.keys import read_private_key, read_public_key
from sgl_tune.ship.signing.signature import Guard, Signature, Trusted, signature_of
from tests.sgl_tune.ship.signing import make_keys

DIGEST = f"sha256:{hashlib.sha256(b'a bundle').hexdigest()}"
CODE = BundleManifest("sgl-tune", "/sgl-tune", (), (PackedStore("triton", 1, 1, 1, True),))


def _signed(folder: Path, name: str = "sign") -> tuple[Signature, Trusted]:
    private, public = make_keys(folder, name)
    return signature_of(read_private_key(private, {}), DIGEST), Trusted(public.name, read_public_key(public))


def test_one_of_the_trusted_keys_is_enough(tmp_path: Path) -> None:
    mine, sign = _signed(tmp_path)
    theirs, other = _signed(tmp_path, "other")
    for trusted in ((sign,), (other, sign)):
        for pulled in (False, True):
            guard = Guard(None, trusted, (mine,), pulled)
            assert guard.judge(DIGEST, CODE).words == "signed by sign.pub"
    assert Guard(None, (sign, other), (mine, theirs)).signers(DIGEST) == ("sign.pub", "other.pub")


def test_a_key_that_others_may_write_decides_nothing(tmp_path: Path) -> None:
    _, public = make_keys(tmp_path)
    public.chmod(0o664)
    with pytest.raises(UsageError, match=r"others may write it \(mode 664\)"):
        read_public_key(public)


def test_a_policy_file_is_refused_with_what_replaces_it(tmp_path: Path) -> None:
    policy = tmp_path / "trust.toml"
    policy.write_text('[keys.release]\npublic-key = "release.pub"\n')
    policy.chmod(0o644)
    with pytest.raises(UsageError, match="is no public key in PEM") as refused:
        read_public_key(policy)
    assert refused.value.remedy == "policy files are no longer read: give --trust once for each of its keys"
