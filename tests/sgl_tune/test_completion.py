"""Completion, as a shell asks for it."""

import shutil
import subprocess
from pathlib import Path

import pytest

from tests.programs import program
from tests.sgl_tune.running import PROGRAM, ROOT, environment, run

_BASH = """
eval "$(_SGL_TUNE_COMPLETE=source_bash sgl-tune)"
COMP_WORDS=({words}); COMP_CWORD={position}
_sgl_tune_completion sgl-tune
printf '%s\\n' "${{COMPREPLY[@]}}"
"""


def _offered(line: str, folder: Path) -> list[str]:
    """What bash's own completion of `line` would show."""
    words = [*line.split(), ""] if line.endswith(" ") else line.split()
    script = _BASH.format(words=" ".join(f"'{word}'" for word in words), position=len(words) - 1)
    return _ask_shell("bash", script, folder).split()


def _ask_shell(shell: str, script: str, folder: Path) -> str:
    program(folder / "sgl-tune", f'exec {" ".join(PROGRAM)} "$@"')
    path = f"{folder}:{environment()['PATH']}"
    done = subprocess.run(
        [shell, "-c", script],
        capture_output=True, text=True, env={**environment(), "PATH": path}, cwd=folder, timeout=60,
    )  # fmt: skip
    assert done.stderr == ""
    return done.stdout


@pytest.mark.skipif(shutil.which("bash") is None, reason="no bash here")
@pytest.mark.parametrize(
    ("line", "expected"),
    [
        ("sgl-tune in", ["inspect"]),
        ("sgl-tune pu", ["pull", "push"]),
        ("sgl-tune warm --gpu h1", ["h100", "h100-nvl"]),
        ("sgl-tune warm --model-path Qwen3-3", ["Qwen3-30B-A3B"]),
        ("sgl-tune warm --model-config Mix", ["Mixtral-8x7B"]),
        ("sgl-tune verify --quantization f", ["fp8"]),
        ("sgl-tune explain -f s", ["sgl-tune.toml:chat", "sgl-tune.toml:reason"]),
        ("sgl-tune pack --store tri", ["triton"]),
        ("sgl-tune unpack --re", ["--rekey", "--replace"]),
        ("sgl-tune inspect --form", ["--format"]),
        ("sgl-tune inspect --format j", ["json"]),
        ("sgl-tune verify --fl", ["--fleet"]),
    ],
)
def test_bash_completes(line: str, expected: list[str], tmp_path: Path) -> None:
    tables = "".join(f'[deployments.{name}]\nmodel-path = "M"\n' for name in ("chat", "reason"))
    (tmp_path / "sgl-tune.toml").write_text(tables)
    assert sorted(_offered(line, tmp_path)) == expected


@pytest.mark.skipif(shutil.which("bash") is None, reason="no bash here")
def test_a_key_is_completed_from_the_caches_there_are(tmp_path: Path) -> None:
    examples = ROOT / "cache-examples" / "cache"
    offered = _offered(f"sgl-tune inspect --cache-dir {examples} ", tmp_path)
    assert offered and all(list(examples.rglob(key)) for key in offered)


@pytest.mark.skipif(shutil.which("bash") is None, reason="no bash here")
def test_a_broken_project_file_offers_nothing_and_says_nothing(tmp_path: Path) -> None:
    (tmp_path / "sgl-tune.toml").write_text("[")
    assert _offered("sgl-tune warm --file ", tmp_path) == []


@pytest.mark.parametrize(
    ("shell", "script", "read_by"),
    [
        ("bash", ".bash_completions/sgl-tune.sh", ".bashrc"),
        ("zsh", ".zfunc/_sgl-tune", ".zshrc"),
        ("fish", ".config/fish/completions/sgl-tune.fish", None),
    ],
)
def test_a_shell_gets_its_completion(shell: str, script: str, read_by: str | None, tmp_path: Path) -> None:
    ran = run("--install-completion", shell, HOME=str(tmp_path), SHELL="/bin/other")
    said = f"{shell} completion installed in {tmp_path / script}; the next {shell} has it\n"
    assert (ran.code, ran.out, ran.err) == (0, said, "")
    assert "_SGL_TUNE_COMPLETE" in (tmp_path / script).read_text()
    assert read_by is None or (tmp_path / read_by).is_file()
    shown = run(f"--show-completion={shell}", HOME=str(tmp_path))
    assert shown.out.strip() == (tmp_path / script).read_text().strip()
