"""Who is believed, and for what."""

from __future__ import annotations

import hashlib
import re
from pathlib import Path

import pytest

pytest.importorskip("cryptography")

from sgl_tune.errors import CheckFailed, SglTuneError, UsageError
from sgl_tune.ship.signing.keys import read_private_key
from sgl_tune.ship.signing.policy import Contents, Policy, read_policy
from sgl_tune.ship.signing.signature import Signature, signature_of
from sgl_tune.ship.signing.trust import judge, vouched
from tests.sgl_tune.running import ROOT
from tests.sgl_tune.ship.signing import make_keys

DIGEST = f"sha256:{hashlib.sha256(b'a bundle').hexdigest()}"
TACTICS = Contents(("zai-org/GLM-5.1",), ("4aae00",), ("tactics",))
CODE = Contents(("zai-org/GLM-5.1",), ("4aae00",), ("tactics", "triton"))


def _policy(folder: Path, text: str) -> Policy:
    path = folder / "trust.toml"
    path.write_text(text)
    path.chmod(0o644)
    return read_policy(path)


def _signed(folder: Path, name: str = "sign") -> tuple[list[Signature], Path]:
    private, public = make_keys(folder, name)
    return [signature_of(read_private_key(private, {}), DIGEST)], public


def _judged(
    policy: Policy | None,
    signatures: list[Signature],
    contents: Contents,
    pulled: bool = True,
    allowed: bool = False,
) -> str:
    return judge(vouched(policy, signatures, DIGEST), contents, pulled, allowed).words


def test_a_key_asks_for_its_signature_whatever_is_in_the_bundle(tmp_path: Path) -> None:
    signed, public = _signed(tmp_path)
    others, _ = _signed(tmp_path, "other")
    policy = read_policy(public)
    assert _judged(policy, signed, CODE) == _judged(policy, others + signed, CODE) == "signed by sign.pub"
    for contents in (TACTICS, CODE):
        with pytest.raises(CheckFailed, match=r"signed, but by no key of .*sign\.pub"):
            _judged(policy, others, contents)
        with pytest.raises(CheckFailed, match="is not signed"):
            _judged(policy, [], contents)


def test_without_a_key_code_is_landed_when_it_was_not_pulled_or_when_somebody_said_so(tmp_path: Path) -> None:
    signed, _ = _signed(tmp_path)
    assert _judged(None, [], TACTICS) == "tactics alone, nothing in it is code"
    assert _judged(None, signed, TACTICS).endswith("; --trust KEY would check its signature")
    assert "nobody vouches for the code in it (triton)" in _judged(None, [], CODE, pulled=False)
    assert judge(vouched(None, [], DIGEST), CODE, pulled=True, allow_unsigned_code=True).doubt
    with pytest.raises(UsageError, match="nobody has signed it"):
        _judged(None, [], CODE)
    with pytest.raises(UsageError, match="nothing to check its signature with") as refused:
        _judged(None, signed, CODE)
    assert "--trust KEY" in str(refused.value.remedy)


def test_a_store_that_nobody_knows_is_code() -> None:
    with pytest.raises(UsageError, match=r"code \(new-store\)"):
        _judged(None, [], Contents((), (), ("tactics", "new-store")))


def test_a_policy_says_what_needs_no_signature(tmp_path: Path) -> None:
    signed, _ = _signed(tmp_path)
    text = '[keys.release]\npublic-key = "sign.pub"\n'
    usual = _policy(tmp_path, text)
    assert _judged(usual, signed, CODE) == "signed by release"
    assert "tactics alone" in _judged(usual, [], TACTICS)
    with pytest.raises(CheckFailed, match=r"the bundle holds code \(triton\) and is not signed"):
        _judged(usual, [], CODE, pulled=False)
    assert "nobody vouches" in _judged(_policy(tmp_path, 'unsigned = "anything"\n' + text), [], CODE)
    with pytest.raises(CheckFailed, match="is not signed"):
        _judged(_policy(tmp_path, 'unsigned = "nothing"\n' + text), [], TACTICS)


@pytest.mark.parametrize(
    ("limit", "told"),
    [
        ('models = ["zai-org/*"]', None),
        ('models = ["Qwen/*"]', "model 'zai-org/GLM-5.1'"),
        ('cache-keys = ["4aa*"]\nstores = ["tactics", "triton"]', None),
        ('cache-keys = ["dead*"]', "cache key '4aae00'"),
        ('stores = ["tactics"]', "store 'triton'"),
    ],
)
def test_a_key_signs_what_it_may(limit: str, told: str | None, tmp_path: Path) -> None:
    signed, _ = _signed(tmp_path)
    policy = _policy(tmp_path, f'[keys.ci]\npublic-key = "sign.pub"\n{limit}\n')
    if told is None:
        assert _judged(policy, signed, CODE) == "signed by ci"
    else:
        with pytest.raises(CheckFailed, match=f"signed by ci, who may not sign {told}"):
            _judged(policy, signed, CODE)


def test_what_names_no_model_is_not_signed_by_who_is_limited_to_some(tmp_path: Path) -> None:
    signed, _ = _signed(tmp_path)
    policy = _policy(tmp_path, '[keys.ci]\npublic-key = "sign.pub"\nmodels = ["*"]\n')
    with pytest.raises(CheckFailed, match="a bundle that names no model"):
        _judged(policy, signed, Contents((), (), ("triton",)))


@pytest.mark.parametrize(
    ("text", "told"),
    [
        ("", "names no key"),
        ("keys = 1", "names no key"),
        ("[keys]", "names no key"),
        ("[key.a]\npublic-key = 'sign.pub'", "key is unknown"),
        ("[keys.a]\npublic-key = 'sign.pub'\nmodel = ['x']", "keys.a.model is unknown"),
        ("[keys.a]\npublic-key = 'sign.pub'\nmodels = 'x'", "keys.a.models is 'x'"),
        ("[keys.a]\npublic-key = 'sign.pub'\nmodels = []", r"keys.a.models is \[\]"),
        ("[keys.a]\npublic-key = 1", "keys.a.public-key is 1"),
        ("[keys.a]\npublic-key = 'none.pub'", "none.pub cannot be read"),
        ("[keys.a]\npublic-key = 'trust.toml'", "is no public key in PEM"),
        ("unsigned = 'all'\n[keys.a]\npublic-key = 'sign.pub'", "unsigned is 'all'"),
        ("unsigned = []\n[keys.a]\npublic-key = 'sign.pub'", r"unsigned is \[\]"),
        ("[keys\n", "neither a public key in PEM nor TOML"),
        ("a=" + "[" * 30000, "neither a public key in PEM nor TOML"),
    ],
)
def test_a_policy_is_read_strictly(text: str, told: str, tmp_path: Path) -> None:
    make_keys(tmp_path)
    with pytest.raises(UsageError, match=told):
        _policy(tmp_path, text)


def test_the_policy_that_the_page_shows_is_one(tmp_path: Path) -> None:
    (shown,) = re.findall(r"```toml\n(unsigned.*?)```", (ROOT / "docs" / "ship.md").read_text(), re.DOTALL)
    for name in ("release", "nightly"):
        make_keys(tmp_path, name)
    release, nightly = _policy(tmp_path, shown).signers
    assert release.stores is None and nightly.stores == ("tactics", "triton")


def test_a_key_that_others_may_write_decides_nothing(tmp_path: Path) -> None:
    _, public = make_keys(tmp_path)
    public.chmod(0o664)
    with pytest.raises(UsageError, match=r"others may write it \(mode 664\)"):
        read_policy(public)
    with pytest.raises(SglTuneError, match="others may write it"):
        _policy(tmp_path, '[keys.a]\npublic-key = "sign.pub"')
