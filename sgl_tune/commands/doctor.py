"""`sgl-tune doctor`: say in one line whether this server's cache is used now."""

from __future__ import annotations

from sgl_tune.cli.format import Format, FormatOption, QuietOption, sink
from sgl_tune.cli.out import Output
from sgl_tune.commands.asked import ServerOption, asked_by
from sgl_tune.commands.verify import Told, judged, warming
from sgl_tune.deployment.file_option import FileOption
from sgl_tune.deployment.options import ServerCommand, ServerFlags
from sgl_tune.errors import Ended, SglTuneError
from sgl_tune.verify.environment import target_here
from sgl_tune.verify.expected import WARM
from sgl_tune.verify.findings import Severity, Verdict
from sgl_tune.verify.scope import VerifyOptions

_USED = (Verdict.HIT, Verdict.PARTIAL)
_OF_VERIFY = (
    ("--model-config", "model_config", "FILE"),
    ("--gpu", "gpu", "GPU"),
    ("--cache-dir", "cache_dir", "DIR"),
)
_COMPARE = (
    "run it where the server runs; or there `sgl-tune env --format json > env.json`, and here"
    " `sgl-tune verify --target env.json`"
)


def doctor(
    command: ServerCommand = None,
    file: FileOption = None,
    server: ServerOption = None,
    format: FormatOption = Format.human,
    quiet: QuietOption = False,
) -> None:
    """Say in one line whether the next start of a server will use the caches on this machine.

    Run it where the server runs, with the server's command or its manifest. If neither is given, the caches
    in the server's folder are judged by themselves. `sgl-tune verify` shows the details.

    Example: sgl-tune doctor -- python -m sglang.launch_server --model-path M --tp 8

    Example: sgl-tune doctor -f deployment.yaml
    """
    out = Output(sink(format, quiet))
    by = asked_by(ServerFlags(), file, command, server)
    asked = VerifyOptions(by.flags, None, by.command, by.deployment)
    out.note("Looking at what the next start here would load; to ask SGLang itself may take minutes.")
    silent = Output(Format.quiet)
    told = Told(asked, target_here(), None, None, None, by, "doctor")
    try:
        found = judged(silent, told)
    except SglTuneError as error:
        raise type(error)(error.message, _by_verify(told, error.remedy)) from None
    is_used = found.ok and any(one.verdict in _USED for one in found.report.files)
    is_known = not found.ok or asked.names_a_deployment or told.machine.metadata is not None
    is_known &= not found.verdict.startswith("not known")
    _, _, why = found.verdict.partition(": " if found.ok else "; ")
    if found.ok and told.machine.metadata is None:
        why += "; not compared with this machine, which has no GPU with a FlashInfer"
    report = found.report
    located = [
        *report.findings,
        *(one._replace(where=str(f.path)) for f in report.files for one in f.findings),
    ]
    worst = next((one for one in located if one.severity is Severity.ERROR), None)
    fix = worst.remedy if worst else "" if is_known else _COMPARE
    if worst is not None:
        why = f"{worst}; {why}" if is_known else worst.message
        fix = warming(told) if asked.names_a_deployment and fix == WARM else fix
    judgement = "used" if is_used else "nothing to use" if found.ok else "not used"
    says = f"{judgement if is_known else 'not known'}: {why}"
    line = f"{says}; fix: {fix}" if fix else says
    data = {"used": is_used and is_known, "ok": found.ok and is_known, "verdict": says, "fix": fix or None}
    out.result(data, lambda: out.line(line), [line])
    raise Ended(0 if data["ok"] else 1)


def _by_verify(told: Told, remedy: str | None) -> str | None:
    """Return the remedy; if it names options that doctor lacks, with the `verify` that has them."""
    lacks = {field: value for option, field, value in _OF_VERIFY if option in (remedy or "")}
    asked = told.asked._replace(flags=told.asked.flags.changed(**lacks))
    return f"{remedy}; with it: {warming(told._replace(asked=asked), 'verify')}" if lacks else remedy
