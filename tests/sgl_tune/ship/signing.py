"""Throwaway keys, made anew for each test that wants one."""

from pathlib import Path


def make_keys(folder: Path, name: str = "sign") -> tuple[Path, Path]:
    """A private and a public key, with the modes that such files have."""
    from cryptography.hazmat.primitives.asymmetric import ec
    from cryptography.hazmat.primitives.serialization import (
        Encoding,
        NoEncryption,
        PrivateFormat,
        PublicFormat,
    )

    key = ec.generate_private_key(ec.SECP256R1())
    private, public = folder / f"{name}.key", folder / f"{name}.pub"
    private.touch(0o600)
    private.write_bytes(key.private_bytes(Encoding.PEM, PrivateFormat.PKCS8, NoEncryption()))
    public.write_bytes(key.public_key().public_bytes(Encoding.PEM, PublicFormat.SubjectPublicKeyInfo))
    public.chmod(0o644)
    return private, public
