"""The page: whole in itself, and safe whatever a model is called."""

import json
import re
from dataclasses import replace
from typing import Any

from sgl_tune.memory.report import Answer
from sgl_tune.memory.views.tables import render_page
from tests.sgl_tune.memory.reports import make_report


def _make_page(**changes: Any) -> str:
    report = replace(make_report(failed=True), what_if={"dp=4": make_report()})
    return render_page(Answer(replace(report, whose=replace(report.whose, **{"title": "GLM", **changes}))))


def _data(page: str) -> dict[str, Any]:
    match = re.search(r'<script type="application/json" id="data">(.*?)</script>', page, re.DOTALL)
    assert match is not None
    data: dict[str, Any] = json.loads(match[1])
    return data


def test_the_page_fetches_nothing() -> None:
    page = _make_page()
    assert "{{" not in page
    assert not re.search(r"<(link|img|iframe)[^>]+(https?:|//)|@import|url\(|fetch\(|<script[^>]+src", page)


def test_the_data_is_the_reports() -> None:
    data = _data(_make_page())
    assert data["oom"]["phase"] == "autotune" and data["what_if"]["dp=4"]["verdict"] == "fits"


def test_names_are_text_and_never_markup() -> None:
    hostile = "</script><script>alert(1)</script>{{script}}<b>"
    page = _make_page(title=hostile, subtitle=hostile)
    assert page.count("<script") == 2 and "alert(1)</script>" not in page
    assert _data(page)["title"] == hostile
    assert "innerHTML" not in page and "outerHTML" not in page
