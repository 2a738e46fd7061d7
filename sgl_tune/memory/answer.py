"""Choose what answers a question about memory: a log, a measurement, the user's own server or the core."""

from __future__ import annotations

import re
from dataclasses import replace
from typing import Any

from sgl_tune.cli.out import Output
from sgl_tune.deployment.flag_names import flag_types
from sgl_tune.deployment.options import LONG, TARGET_FIELDS, ServerFlags
from sgl_tune.errors import UsageError
from sgl_tune.memory.compare import beside_log
from sgl_tune.memory.core.measured import measured_answer
from sgl_tune.memory.options import MemoryOptions, ShowOptions
from sgl_tune.memory.report import Answer
from sgl_tune.memory.study import of_project, starter_of, study
from sgl_tune.server_log.log import ServerLog

_MISSED = "the prediction does not include these settings of the log's server:"
# The log shows their resolved values: SGLang reads them from elsewhere when they are not set.
_LEFT_OUT = TARGET_FIELDS | {"dist_init_addr", "flashinfer_autotune_skip_ops", "cuda_graph_bs"}
_MATTER = (
    "cpu_offload_gb",
    "enable_lora",
    "enable_hierarchical_cache",
    "enable_memory_saver",
    "enable_two_batch_overlap",
    "enable_single_batch_overlap",
    "enable_symm_mem",
    "enable_torch_compile",
    "json_model_override_args",
    "ep_num_redundant_experts",
)
_UNSET = ("None", "False", "0", "{}", "")


def answer(asked: MemoryOptions, shown: ShowOptions, out: Output) -> Answer:
    if sum((asked.measure, asked.from_run is not None, asked.from_log is not None)) > 1:
        raise UsageError("--measure and --log are two sources of one report", "give one")
    if asked.measure or asked.from_run is not None:
        return measured_answer(asked, out)
    if asked.from_log is not None:
        return _beside_log(asked, asked.from_log.log, shown, out)
    asked = of_project(asked)
    with starter_of(asked, shown, out) as starter:
        return study(asked, starter, out, shown.record)


def _beside_log(asked: MemoryOptions, log: ServerLog, shown: ShowOptions, out: Output) -> Answer:
    """Predict the start that the log's own flags describe; flags of the command line win over them."""
    given = asked.command or asked.deployment
    asked = asked if given else replace(asked, flags=flags_of_log(log.server_args or "", asked.flags))
    if not asked.names_a_start:
        raise UsageError(
            f"{log.path} does not show the server's flags: it has no server_args= line",
            "give the server's flags as well, --model-path first",
        )
    total = log.oom.numbers.total_bytes or None if log.oom and log.oom.numbers else None
    with starter_of(asked, shown, out, total) as starter:
        found = study(asked, starter, out, shown.record)
    compared = beside_log(found.report, log)
    report = replace(found.report, comparisons=(compared,) if compared.rows else ())
    if missed := () if given else not_taken(log.server_args or ""):
        report = report.with_notes(warnings=[f"{_MISSED} {', '.join(missed)}; give the command after --"])
    return Answer(report, found.sweep)


def flags_of_log(server_args: str, given: ServerFlags) -> ServerFlags:
    """Return the flags in the log's server_args= line, changed by the `given` flags. The line is a repr of
    ServerArgs, or of a dict since 0.5.18."""
    logged = {}
    for name, kind in flag_types().items():
        if name not in _LEFT_OUT and (value := _value(server_args, LONG.get(name, name), kind)) is not None:
            logged[name] = value
    if logged.get("enable_dp_attention") and "chunked_prefill_size" in logged:
        # SGLang divides the chunk among DP ranks before it prints it.
        logged["chunked_prefill_size"] *= max(1, logged.get("dp", 1))
    return given.over(ServerFlags.of(**logged))


def not_taken(server_args: str) -> tuple[str, ...]:
    """Return the server's settings that take memory and that sgl-tune has no flag for."""
    said = {name: _word(server_args, name) for name in _MATTER}
    return tuple(f"--{name.replace('_', '-')} {word}" for name, word in said.items() if word not in _UNSET)


def _value(text: str, name: str, kind: type) -> Any:
    word = _word(text, name)
    if word in ("None", "auto"):
        return None
    if kind is bool:
        return {"True": True, "False": False}.get(word)
    try:
        return kind(word)
    except ValueError:
        return None


def _word(text: str, name: str) -> str:
    match = re.search(rf"[(,{{ ]'?{name}'?[=:] ?('[^']{{0,400}}'|[\w.-]{{1,40}})", text)
    return match[1].strip("'") if match else "None"
