"""A survey as JUnit's XML: one suite per deployment, one case per node."""

from __future__ import annotations

from collections.abc import Iterator
from xml.etree import ElementTree

from sgl_tune.cli.out import printable
from sgl_tune.fleet.outcome import Fault, Outcome
from sgl_tune.fleet.survey import Survey

_NAME = "sgl-tune verify --fleet"


def junit_lines(survey: Survey) -> Iterator[str]:
    suites: dict[str, list[tuple[str, Outcome]]] = {}
    for node in survey.nodes:
        for alike in node.alike:
            suites.setdefault(alike.deployment or "not planned", []).append((node.name, alike.outcome))
    unread = [(f"line {line.number}", _unread(str(line.problem))) for line in survey.problems]
    root = ElementTree.Element("testsuites", name=_NAME)
    for name, cases in [*suites.items(), *([("lines", unread)] if unread else [])]:
        states = [outcome.state for _, outcome in cases]
        unknown, failures = states.count("unknown"), sum(state not in ("good", "unknown") for state in states)
        counts = {"tests": len(states), "failures": failures, "errors": unknown, "skipped": 0}
        numbers = {what: str(number) for what, number in counts.items()}
        suite = ElementTree.SubElement(root, "testsuite", {"name": printable(name), **numbers})
        for case_name, outcome in cases:
            named = {"classname": printable(name), "name": printable(case_name)}
            _told(ElementTree.SubElement(suite, "testcase", named), outcome)
    ElementTree.indent(root)
    yield '<?xml version="1.0" encoding="UTF-8"?>'
    yield from ElementTree.tostring(root, encoding="unicode").splitlines()


def _unread(problem: str) -> Outcome:
    return Outcome((Fault("unknown", "unread", problem, "one line of `sgl-tune env --format json` each"),))


def _told(case: ElementTree.Element, outcome: Outcome) -> None:
    state = outcome.state
    if state != "good":
        worst = next(fault for fault in outcome.bad if fault.state == state)
        said = {"message": printable(worst.message), "type": printable(worst.code)}
        element = ElementTree.SubElement(case, "error" if state == "unknown" else "failure", said)
        element.text = "\n".join(
            printable(f"{fault.state} {fault.code}: {fault.message}; {fault.remedy}") for fault in outcome.bad
        )
