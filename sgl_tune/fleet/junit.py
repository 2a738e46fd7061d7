"""A survey as JUnit's XML: a suite a deployment, a case a node."""

from __future__ import annotations

from collections.abc import Iterator
from xml.etree import ElementTree

from sgl_tune.cli.out import printable
from sgl_tune.fleet.outcome import Outcome
from sgl_tune.fleet.survey import Alike, Survey

_NAME = "sgl-tune verify --fleet"


def junit_lines(survey: Survey) -> Iterator[str]:
    suites: dict[str, list[tuple[str, Alike]]] = {}
    for node in survey.nodes:
        for alike in node.alike:
            suites.setdefault(alike.deployment or "not planned", []).append((node.name, alike))
    root = ElementTree.Element("testsuites", name=_NAME)
    for name, cases in suites.items():
        states = [alike.state for _, alike in cases]
        suite = _suite(
            root, name, len(cases), sum(_fails(state) for state in states), states.count("unknown")
        )
        for case_name, alike in cases:
            case = _case(suite, case_name, name)
            _told(case, alike.outcome)
    if survey.problems:
        suite = _suite(root, "lines", len(survey.problems), 0, len(survey.problems))
        for line in survey.problems:
            case = _case(suite, f"line {line.number}", "lines")
            ElementTree.SubElement(case, "error", message=printable(str(line.problem)))
    ElementTree.indent(root)
    yield '<?xml version="1.0" encoding="UTF-8"?>'
    yield from ElementTree.tostring(root, encoding="unicode").splitlines()


def _fails(state: str) -> bool:
    return state not in ("good", "unknown")


def _suite(
    root: ElementTree.Element, name: str, tests: int, failures: int, errors: int
) -> ElementTree.Element:
    counts = {"tests": str(tests), "failures": str(failures), "errors": str(errors), "skipped": "0"}
    return ElementTree.SubElement(root, "testsuite", {"name": printable(name), **counts})


def _case(suite: ElementTree.Element, name: str, of: str) -> ElementTree.Element:
    return ElementTree.SubElement(suite, "testcase", classname=printable(of), name=printable(name))


def _told(case: ElementTree.Element, outcome: Outcome) -> None:
    state = outcome.state
    if state != "good":
        worst = next(fault for fault in outcome.bad if fault.state == state)
        kind = "failure" if _fails(state) else "error"
        element = ElementTree.SubElement(
            case, kind, message=printable(worst.message), type=printable(worst.code)
        )
        element.text = "\n".join(
            printable(f"{fault.state} {fault.code}: {fault.message}; {fault.remedy}") for fault in outcome.bad
        )
