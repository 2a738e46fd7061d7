"""A small program for one test."""

from pathlib import Path


def program(path: Path, text: str, runs: str = "/bin/sh") -> Path:
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(f"#!{runs}\n{text}\n")
    path.chmod(0o755)
    return path
