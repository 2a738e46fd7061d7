"""An account shows what SGLang made of a command: values, who set them, and SGLang's own lines."""

from dataclasses import replace
from typing import Any

from runtime.record.events import record_of
from runtime.record.record import Record
from sgl_tune.explain.account import Account, Argument
from tests.record.test_record import ASKED, ENDED

FOLDER = "/w/models0/org-m"
TYPED = ("--model-path", "org/m", "--tp", "2")
ARGUMENTS = {
    "model_path": FOLDER,
    "served_model_name": FOLDER,
    "tp_size": 2,
    "chunked_prefill_size": 4096,
    "random_seed": 7,
    "load_format": "dummy",
    "page_size": 1,
    "port": 30000,
}
RESOLVED = {
    "event": "asked",
    "arguments": ARGUMENTS,
    "given": {"model_path": FOLDER, "tp_size": 2},
    "defaults": {"tp_size": 1, "served_model_name": None, "chunked_prefill_size": None, "model_path": None},
}
SETTLED = {
    "event": "settled",
    "config_class": "C",
    "dtype": "bfloat16",
    "kv_cache_dtype": "bfloat16",
    "context_length": 4096,
    "attn_dp_size": 1,
    "decode_graphs": [1, 2],
    "prefill_graphs": [],
    "most_requests": 8,
    "gate": {"tunes": True, "file": "flashinfer/autotune/0.7.2/sm90/typed/rank_tp0_pp0_dp0.json"},
}
STOPPED = {"event": "stopped", "phase": "gates"}


def said(text: str, phase: str = "") -> dict[str, Any]:
    return {"event": "said", "phase": phase, "level": "warning", "text": text}


def named(key: str) -> dict[str, Any]:
    path = f"/w/home/.cache/sglang/flashinfer/autotune/0.7.2/sm90/{key}/rank_tp0_pp0_dp0.json"
    file = {"store": "flashinfer tactics of the ranks", "path": path, "found": False}
    return {"event": "file", "phase": "autotune", **file}


def started(*events: dict[str, Any], folder: str = FOLDER) -> Record:
    asked = replace(ASKED, argv=("--model-path", folder, "--tp", "2"))
    return record_of(asked, [*events, ENDED])


def account(*events: dict[str, Any]) -> Account:
    return Account(started(*events), TYPED)


def argument(found: Account, name: str) -> Argument:
    return next(one for one in found.arguments if one.name == name)


def test_a_value_has_what_was_asked_and_the_default_beside_it() -> None:
    found = account(RESOLVED, SETTLED, STOPPED)
    tp, chunk = argument(found, "tp_size"), argument(found, "chunked_prefill_size")
    assert (tp.value, tp.given, tp.default) == (2, 2, 1)
    assert (chunk.value, chunk.is_given, chunk.default) == (4096, False, None)
    assert argument(found, "port").is_default


def test_the_reason_is_sglangs_own_line_and_no_other() -> None:
    line = "\x1b[1mDP attention is enabled. Chunked prefill size is adjusted from 8192 to 4096.\x1b[0m"
    found = account(RESOLVED, said(line), said("Another word."), said("tp size later", "weights"), STOPPED)
    told = "DP attention is enabled. Chunked prefill size is adjusted from 8192 to 4096."
    assert argument(found, "chunked_prefill_size").why == (told,)
    assert argument(found, "tp_size").why == () and found.said == ("Another word.",)


def test_a_folder_that_stands_for_the_model_is_shown_as_it_was_typed() -> None:
    found = account(RESOLVED, SETTLED, STOPPED)
    assert argument(found, "model_path").value == argument(found, "served_model_name").value == "org/m"


def test_what_a_recorded_start_sets_itself_and_what_is_drawn_is_no_answer() -> None:
    found = account(RESOLVED, said("load_format=dummy: no weights"), STOPPED)
    assert not {"load_format", "random_seed"} & {one.name for one in found.arguments}
    assert found.said == () and any("load_format" in left for left in found.not_asked)


def test_the_key_is_that_of_the_gates_file() -> None:
    found = account(RESOLVED, SETTLED, STOPPED)
    assert found.settled["tunes"] is True and found.settled["key"] == "typed"
    assert "key typed" in found.says and found.exit_code == 0 and len(found.files) == 1


def test_a_closed_gate_says_so() -> None:
    closed = {**SETTLED, "gate": {**SETTLED["gate"], "tunes": False}}
    assert "tunes nothing" in account(RESOLVED, closed, STOPPED).says


def test_a_refusal_is_quoted_and_a_death_is_named() -> None:
    refused = account({"event": "refused", "text": "usage\nno such flag --tpp", "type": "SystemExit"})
    assert refused.exit_code == 2 and refused.says.endswith("no such flag --tpp")
    died = account(RESOLVED, {"event": "died", "phase": "communicator", "type": "OSError", "text": "gone"})
    assert died.exit_code == 1 and "communicator: OSError gone" in died.says


def test_what_the_record_lacks_is_said() -> None:
    lacking = account(RESOLVED, {"event": "lacks", "what": "settled", "why": "KeyError: x"}, STOPPED)
    assert "settled: KeyError: x" in lacking.not_asked


def test_an_early_stop_says_what_was_not_asked() -> None:
    assert "tuner keys" in account(RESOLVED, SETTLED, STOPPED).not_asked[0]


def test_a_verdict_that_is_not_exact_says_so_in_its_line() -> None:
    guess = {"event": "inexact", "kind": "guess", "name": "sms", "phase": "", "frame": "", "why": "no source"}
    assert account(RESOLVED, SETTLED, guess, STOPPED).says.endswith("; not exact, because of sms: no source")
