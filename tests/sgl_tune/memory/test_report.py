"""The report's data and what a terminal shows of it."""

import io
import json
from dataclasses import replace

from runtime.server.units import GIB
from sgl_tune.cli.format import Format
from sgl_tune.cli.out import Output, to_json
from sgl_tune.memory.parts import in_begin_order, rooted
from sgl_tune.memory.report import Answer, worst
from sgl_tune.memory.views.tables import highest_that_fits, verdict
from sgl_tune.memory.views.terminal import phase_lines, show_answer
from tests.sgl_tune.memory.reports import make_phase, make_report
from tests.sgl_tune.schemas import SCHEMAS

CONTRACT = {"name", "persistent_bytes", "peak_bytes", "transient_bytes", "reserved_peak_bytes",
            "free_at_peak_bytes", "seconds", "largest", "held"}  # fmt: skip


def _shown(found: Answer, verbose: bool = False) -> str:
    stream = io.StringIO()
    show_answer(Output(Format.human, stdout=stream), found, verbose)
    return stream.getvalue()


def test_json_holds_the_contract() -> None:
    report = replace(make_report(failed=True), what_if={"dp=4": make_report()})
    data = json.loads(to_json(report.to_json()))
    assert data["verdict"] == "oom" and data["source"] == "core"
    assert all(phase.keys() >= CONTRACT for phase in data["phases"])
    assert data["oom"]["tried_bytes"] == round(6.38 * GIB) and data["oom"]["phase"] == "autotune"
    assert data["oom"]["where"] and data["oom"]["remedies"] == []
    assert data["what_if"]["dp=4"]["verdict"] == "fits"


def test_phases_stand_in_the_order_they_began() -> None:
    ended = make_report().run.phases
    assert [phase.name for phase in ended] == ["weights", "kv pool", "dummy run", "autotune", "decode graphs"]
    ordered = [(phase.name, phase.depth) for phase in in_begin_order(ended)]
    assert ordered[2:4] == [("autotune", 0), ("dummy run", 1)]


def test_phases_nested_deeper_keep_their_order_too() -> None:
    ended = [("a.1", 1), ("a.2.1", 2), ("a.2.2", 2), ("a.2", 1), ("a.3", 1), ("a", 0), ("b.1", 1), ("b", 0)]
    phases = [make_phase(name, 0, 1, depth=depth) for name, depth in ended]
    began = [phase.name for phase in in_begin_order(phases)]
    assert began == ["a", "a.1", "a.2", "a.2.1", "a.2.2", "a.3", "b", "b.1"]


def test_a_phase_whose_outer_one_did_not_end_stands_for_itself() -> None:
    ended = [("pool", 0), ("eager.1", 2), ("eager", 1)]
    phases = tuple(make_phase(name, 0, 1, depth=depth) for name, depth in ended)
    run = replace(make_report().run, phases=phases)
    assert [phase.depth for phase in rooted(run).phases] == [0, 1, 0]


def test_the_peak_is_the_innermost_phase_that_leaves_least() -> None:
    report = make_report(free=1.5)
    assert report.peak is not None and report.peak.name == "dummy run"
    assert report.free_at_peak_bytes == round(1.5 * GIB)


def test_the_rank_that_dies_leads_then_the_tightest() -> None:
    fine, tight, dead = make_report(free=5), make_report(free=1), make_report(failed=True)
    assert worst([fine, tight]) is tight
    assert worst([fine, dead, tight]) is dead


def test_a_verdict_within_the_doubt_says_so() -> None:
    assert verdict(make_report(free=3))[0].startswith("FITS: 3.00 GiB free at the peak, in dummy run")
    assert verdict(make_report(free=0.1))[0].startswith("FITS, BARELY")
    text, style = verdict(make_report(failed=True))
    assert text == "OUT OF MEMORY in autotune: tried 6.38 GiB, 3.00 GiB free (±256 MiB), 75.00 GiB allocated"
    assert style == "red"


def test_every_line_fits_eighty_columns_and_is_plain_in_a_pipe() -> None:
    text = _shown(Answer(make_report(failed=True)))
    rows = [line for line in text.splitlines() if "█" in line]
    assert len(rows) == 4 and all(len(line) <= 80 for line in rows)
    assert "\x1b" not in text


def test_the_failed_phase_is_red_and_marked() -> None:
    lines = dict(phase_lines(make_report(failed=True)))
    failed = next(text for text in lines if "autotune" in text)
    assert failed.startswith("!") and lines[failed] == "red"


def test_bars_need_no_unicode() -> None:
    text = "".join(text for text, _ in phase_lines(make_report(), unicode=False))
    assert text.isascii() and "#" in text


def test_bars_are_of_the_capacity() -> None:
    lines = [text for text, _ in phase_lines(make_report(free=0))]
    weights = next(text for text in lines if "weights" in text)
    autotune = next(text for text in lines if "autotune" in text)
    assert weights.count("█") == round(42 / 80 * 13)
    assert autotune.count("█") + autotune.count("▒") == 13


def test_the_verdict_is_the_first_line_and_provenance_is_for_who_asks() -> None:
    report = make_report().with_notes("model shape: a preset")
    text, whole = _shown(Answer(report)), _shown(Answer(report), verbose=True)
    assert text.startswith("FITS: 3.00 GiB free")
    assert "-v shows where these numbers come from (1 note)" in text
    assert "measured" not in text and "model shape" not in text
    assert "measured" in whole and "model shape: a preset" in whole


def test_what_ifs_stand_side_by_side() -> None:
    report = replace(make_report(), what_if={"lm-head-in-autotune": make_report(failed=True)})
    text = _shown(Answer(report))
    assert "as is" in text and "1,000,000" in text and "What would help" not in text
    assert "lm-head-in-autotune: OUT OF MEMORY in autotune" in text


def test_a_sweep_is_a_frontier_and_names_the_highest_that_fits() -> None:
    sweep = {
        "mem-fraction-static=0.88": make_report(free=4),
        "mem-fraction-static=0.89": make_report(free=2),
        "mem-fraction-static=0.90": make_report(failed=True),
    }
    text = _shown(Answer(make_report(), sweep)).partition("Sweep of mem-fraction-static\n")[2]
    rows = text.splitlines()[1:4]
    assert [row.split()[:2] for row in rows] == [["0.88", "fits"], ["0.89", "fits"], ["0.90", "OOM"]]
    assert "Highest that fits: mem-fraction-static=0.89" in text


def test_a_sweep_in_which_nothing_fits_has_no_highest_that_fits() -> None:
    assert highest_that_fits({"dp=1": make_report(failed=True)}) is None


def test_all_schemas_have_one_form_of_a_report() -> None:
    names = ("mem-report", "mem-report-fit", "mem-report-log")
    forms = [json.loads((SCHEMAS / f"{name}.json").read_text())["$defs"] for name in names]
    assert all(form[name] == forms[0][name] for form in forms for name in form.keys() & forms[0].keys())
