"""The page in a real browser, in both themes: it draws, answers to the pointer and complains of nothing."""

from __future__ import annotations

import shutil
from collections.abc import Iterator
from pathlib import Path

import pytest

from sgl_tune.memory.html import render_page
from tests.sgl_tune.memory.browser import Browser, headless_browser
from tests.sgl_tune.memory.reports import make_report

DRIVER = shutil.which("chromedriver")
BACKGROUND = "return getComputedStyle(document.body).backgroundColor"


@pytest.fixture(scope="module")
def browser() -> Iterator[Browser]:
    if DRIVER is None:
        pytest.skip("no chromedriver here")
    with headless_browser(DRIVER) as opened:
        yield opened


@pytest.fixture
def page(tmp_path: Path) -> Path:
    report = make_report(failed=True).with_what_ifs({"dp=4": make_report(), "dp=2": make_report(free=1)})
    file = tmp_path / "report.html"
    file.write_text(render_page({**report.to_json(), "title": "GLM", "subtitle": "tp 8"}))
    return file


@pytest.mark.parametrize("theme", ["light", "dark"])
def test_it_draws_without_a_complaint_and_fetches_nothing(browser: Browser, page: Path, theme: str) -> None:
    browser.open(page, theme)
    assert browser.run("return document.querySelectorAll('#chart .column').length") == 4
    assert "Out of memory in autotune" in browser.run("return document.body.innerText")
    assert browser.console() == []
    assert browser.requested() == [page.as_uri()]


def test_the_themes_differ(browser: Browser, page: Path) -> None:
    seen = set()
    for theme in ("light", "dark"):
        browser.open(page, theme)
        seen.add(browser.run(BACKGROUND))
    assert len(seen) == 2


def test_a_phase_tells_what_it_holds(browser: Browser, page: Path) -> None:
    browser.open(page, "light")
    browser.run("document.querySelectorAll('.column')[2].focus()")
    tip = browser.run("return document.getElementById('tip').innerText")
    assert "autotune" in tip and "154880" in tip and "dp=4" in tip
    browser.run("document.querySelectorAll('.column')[2].blur()")
    assert browser.run("return document.getElementById('tip').hidden")


def test_a_what_if_can_be_hidden_and_the_axis_moved(browser: Browser, page: Path) -> None:
    browser.open(page, "light")
    browser.run("document.querySelectorAll('#legend input')[0].click()")
    assert browser.run("return document.querySelectorAll('#chart g[display=none]').length") == 1
    before = browser.run("return document.querySelector('#chart .limit').getAttribute('y1')")
    browser.run("[...document.querySelectorAll('#legend input')].at(-1).click()")
    after = browser.run("return document.querySelector('#chart .limit').getAttribute('y1')")
    assert before != after and browser.console() == []


def test_it_is_no_wider_than_a_narrow_window(browser: Browser, page: Path) -> None:
    browser.open(page, "light")
    browser.run("document.body.style.width = '420px'")
    assert browser.run("return document.querySelector('main').scrollWidth") <= 420
