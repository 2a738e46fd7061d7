"""The page in a real browser, in both themes: it draws, answers to the pointer and complains of nothing."""

import shutil
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

import pytest

from sgl_tune.memory.report import Answer
from sgl_tune.memory.views.tables import render_page
from tests.sgl_tune.memory.browser import Browser, headless_browser
from tests.sgl_tune.memory.reports import make_report

DRIVER = shutil.which("chromedriver")
BACKGROUND = "return getComputedStyle(document.body).backgroundColor"
OFF_SCREEN = """
const isOff = of => of.scrollWidth > of.clientWidth + 1 && getComputedStyle(of).display !== "inline";
return [...document.querySelectorAll("main, main *")].filter(isOff).map(of => of.outerHTML.slice(0, 200));
"""
SWEPT = "return [...document.querySelectorAll('#sections svg text')].map(of => of.textContent)"


@pytest.fixture(scope="module")
def browser() -> Iterator[Browser]:
    if DRIVER is None:
        pytest.skip("no chromedriver here")
    with headless_browser(DRIVER) as opened:
        yield opened


@pytest.fixture
def page(tmp_path: Path) -> Path:
    report = replace(make_report(failed=True), what_if={"dp=4": make_report(), "dp=2": make_report(free=1)})
    whose = replace(report.whose, title="GLM", subtitle="tp 8", flags="--mem-fraction-static 0.9")
    report = replace(report, whose=whose)
    first, last = make_report(free=4, kv_tokens=900_000), make_report(True, kv_tokens=1_100_000)
    starts = zip((0.8, 0.85, 0.9), (first, make_report(free=2), last), strict=True)
    sweep = {f"mem-fraction-static={value}": of for value, of in starts}
    file = tmp_path / "report.html"
    file.write_text(render_page(Answer(report, sweep)))
    return file


@pytest.mark.parametrize("theme", ["light", "dark"])
def test_it_draws_without_a_complaint_and_fetches_nothing(browser: Browser, page: Path, theme: str) -> None:
    browser.open(page, theme)
    assert browser.run("return document.querySelectorAll('#chart .column').length") == 5
    assert "OUT OF MEMORY in autotune" in browser.run("return document.body.innerText")
    assert browser.console() == []
    assert browser.requested() == [page.as_uri()]


def test_light_and_dark_themes_have_different_backgrounds(browser: Browser, page: Path) -> None:
    seen = set()
    for theme in ("light", "dark"):
        browser.open(page, theme)
        seen.add(browser.run(BACKGROUND))
    assert len(seen) == 2


def test_a_phase_tells_what_it_holds(browser: Browser, page: Path) -> None:
    browser.open(page, "light")
    browser.run("document.querySelectorAll('.column')[2].focus()")
    tip = browser.run("return document.getElementById('tip').innerText")
    assert "autotune" in tip and "154880" in tip and "KV cache" in tip
    browser.run("document.querySelectorAll('.column')[2].blur()")
    assert browser.run("return document.getElementById('tip').hidden")


def test_a_what_if_can_be_hidden_and_the_axis_moved(browser: Browser, page: Path) -> None:
    browser.open(page, "light")
    browser.run("document.querySelectorAll('#legend input')[0].click()")
    after = "return document.querySelectorAll('#chart [stroke=\"var(--other-0)\"]').length"
    assert browser.run(after) == 0 and browser.run(after.replace("0)", "1)")) > 0
    before = browser.run("return document.querySelector('#chart .limit').getAttribute('y1')")
    browser.run("[...document.querySelectorAll('#legend input')].at(-1).click()")
    after = browser.run("return document.querySelector('#chart .limit').getAttribute('y1')")
    assert before != after and browser.console() == []


@pytest.mark.parametrize("width", [400, 800, 1400])
def test_nothing_is_off_screen(browser: Browser, page: Path, width: int) -> None:
    browser.resize(width)
    browser.open(page, "light")
    assert browser.run("return innerWidth") == width
    assert browser.run(OFF_SCREEN) == []
    inside = "of.getBoundingClientRect().right <= innerWidth"
    assert browser.run(f"return [...document.querySelectorAll('svg text')].every(of => {inside})")


def test_a_sweep_is_drawn_with_the_part_that_fails(browser: Browser, page: Path) -> None:
    browser.resize(800)
    browser.open(page, "dark")
    assert browser.run("return document.querySelectorAll('svg circle').length") == 2
    assert {"does not fit", "0.8", "0.85", "0.9", "900k", "1.10M", "±256 MiB"} <= set(browser.run(SWEPT))
    assert "Highest that fits: mem-fraction-static=0.85" in browser.run("return document.body.innerText")
    before = browser.run("return document.querySelector('#sections svg').getAttribute('viewBox')")
    browser.resize(400)
    browser.run("dispatchEvent(new Event('resize'))")
    assert before != browser.run("return document.querySelector('#sections svg').getAttribute('viewBox')")


def test_its_title_says_what_was_asked(browser: Browser, page: Path) -> None:
    browser.open(page, "light")
    title = browser.run("return document.title")
    assert title == "GLM on Test GPU, 80.00 GiB: tp 8, --mem-fraction-static 0.9"
