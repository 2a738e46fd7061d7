"""`sgl-tune doctor`: say in one line whether this server's cache is used now."""

import re
from contextlib import suppress
from dataclasses import replace
from pathlib import Path

from runtime.ghost.gpus import find
from sgl_tune.asking.whom import ByServer
from sgl_tune.cache.layouts.find import caches_open
from sgl_tune.cache.scan import Scanner
from sgl_tune.cli.format import Format, FormatOption, QuietOption, sink
from sgl_tune.cli.out import Output
from sgl_tune.commands.asked import ServerOption, asked_by
from sgl_tune.commands.verify import Told, judged
from sgl_tune.deployment.cache_dir import default_cache_dir
from sgl_tune.deployment.file_option import FileOption
from sgl_tune.deployment.launch import launch_of
from sgl_tune.deployment.options import ServerCommand, ServerFlags
from sgl_tune.deployment.versions import local_gpus
from sgl_tune.errors import Ended, SglTuneError
from sgl_tune.recorded.to_paste import to_paste
from sgl_tune.verify.away import away_of
from sgl_tune.verify.environment import Target, target_here
from sgl_tune.verify.findings import Severity, Verdict
from sgl_tune.verify.planned import meant_on, plans_of
from sgl_tune.verify.scope import VerifyOptions

_USED = (Verdict.HIT, Verdict.PARTIAL)
_OF_VERIFY = {"--model-config": "FILE", "--gpu": "h200", "--cache-dir": "DIR"}
_COMPARE = "run it where the server runs; or there `sgl-tune env --format json > env.json`, and here"
_COMPARE += " `sgl-tune verify --target env.json`"


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
    here, silent = target_here(), Output(Format.quiet)
    gpu = _gpu_of_caches(by) if by.command and here.metadata is None else None
    by = replace(by, flags=by.flags.changed(gpu=gpu))
    told = Told(asked := VerifyOptions(by), here, None, None, None, "doctor")
    try:
        if _asks(by, here):
            out.note("Asking SGLang itself what the next start here would load: this may take minutes.")
        else:
            told = told._replace(asked=VerifyOptions(replace(by, server=None, only_core="doctor")))
        found = judged(silent, told)
    except SglTuneError as error:
        raise type(error)(error.message, _by_verify(told, error.remedy)) from None
    is_used = found.ok and any(one.verdict in _USED for one in found.report.files)
    is_known = not found.ok or asked.names_a_deployment or here.metadata is not None
    is_known &= not (found.verdict.startswith("not known") or (found.ok and gpu))
    _, _, why = found.verdict.partition(": " if found.ok else "; ")
    if found.ok and here.metadata is None:
        why += "; not compared with this machine, which has no GPU with a FlashInfer"
    of_files = (one._replace(where=str(f.path)) for f in found.report.files for one in f.findings)
    errors = (one for one in (*found.report.findings, *of_files) if one.severity is Severity.ERROR)
    worst = next(errors, None)
    fix = worst.remedy if worst else "" if is_known else _COMPARE
    if worst is not None:
        why = f"{worst}; {why}" if is_known else worst.message
    why = f"if its GPU is that of the caches here, {gpu}: {why}" if gpu else why
    judgement = "used" if is_used else "nothing to use" if found.ok else "not used"
    says = f"{judgement if is_known else 'not known'}: {why}"
    line = f"{says}; fix: {fix}" if fix else says
    data = {"used": is_used and is_known, "ok": found.ok and is_known, "verdict": says, "fix": fix or None}
    out.result(data, lambda: out.line(line), [line])
    raise Ended(0 if data["ok"] else 1)


def _asks(by: ByServer, here: Target) -> bool:
    """Whether a server is asked. If the caches are on a volume that is not here, the verdict depends only on
    whether the server tunes at all, and the runtime core may know that."""
    server = by.found()
    if server is None or not by.command or away_of(by.command, "doctor", False) is None:
        return server is not None
    with suppress(SglTuneError):
        plan = plans_of(meant_on(here, by), here)[0]
        same = plan.deployment.inputs.sglang_version == server.sglang
        return plan.is_idle or bool(plan.deployment.not_modelled) or not same
    return True


def _gpu_of_caches(by: ByServer) -> str | None:
    """Return the only GPU for which the caches in the server's folder were tuned, if nothing else says it."""
    launch = launch_of(by.command)
    if local_gpus() or (launch.container and launch.container.gpu):
        return None
    root = Path(launch.environment.get("SGLANG_CACHE_DIR") or default_cache_dir())
    gpus = {(one.environment or {}).get("gpu", "") for one in Scanner().scan_all(caches_open(root))}
    return gpu if len(gpus) == 1 and find(gpu := gpus.pop()) else None


def _by_verify(told: Told, remedy: str | None) -> str | None:
    """Return the remedy; if it names options that doctor lacks, with the `verify` that has them."""
    lacks = {name[2:].replace("-", "_"): of for name, of in _OF_VERIFY.items() if name in (remedy or "")}
    if named := re.search(r"--model-config ([^;]+)", remedy or ""):
        lacks["model_config"] = named[1]
    by = told.asked.by
    full = to_paste("verify", replace(by, flags=by.flags.changed(**lacks)))
    return f"{remedy}; in full: {full}" if lacks else remedy
