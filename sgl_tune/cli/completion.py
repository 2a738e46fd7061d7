"""`--install-completion zsh`: install completion for the named shell, or else for the current shell."""

from collections.abc import Sequence

from sgl_tune.errors import UsageError

SHELLS = ("bash", "zsh", "fish")
_SHOW = "--show-completion"


def complete(words: Sequence[str]) -> None:
    """Answer typer's completion options here, because typer's own versions do not accept a shell's name."""
    from typer import completion  # imported here: no command is needed

    option, _, named = words[0].partition("=")
    shell = _shell(option, [*filter(None, [named]), *words[1:]])
    variable = "_SGL_TUNE_COMPLETE"
    if option == _SHOW:
        print(completion.get_completion_script(prog_name="sgl-tune", complete_var=variable, shell=shell))
        return
    _, path = completion.install(shell=shell, prog_name="sgl-tune", complete_var=variable)
    print(f"{shell} completion installed in {path}; the next {shell} has it")


def _shell(option: str, named: Sequence[str]) -> str:
    if named and (named[1:] or named[0] not in SHELLS):
        raise UsageError(f"{option} {' '.join(named)}: no such shell", f"one of {', '.join(SHELLS)}")
    found = named[0] if named else _running()
    if found not in SHELLS:
        says = f"this is {found}" if found else "no shell is found that this was typed in"
        raise UsageError(f"{option}: {says}", f"name one: {option} {'|'.join(SHELLS)}")
    return found


def _running() -> str:
    import shellingham

    try:
        return str(shellingham.detect_shell()[0])
    except shellingham.ShellDetectionFailure:
        return ""
