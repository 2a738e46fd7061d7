"""docs/accuracy.md is made from the measured and judged starts."""

from benchmarks.real_starts.page import BLIND, PAGE, blind_rows, page


def test_the_page_is_that_of_the_results() -> None:
    assert PAGE.read_text() == page()


def test_each_round_that_was_predicted_and_run_is_on_the_page() -> None:
    rows = [row for of_round in BLIND for row in blind_rows(of_round)]
    text = PAGE.read_text()
    assert len(rows) >= 5
    assert all(f"| {row['name']} | {row['gpus']} | {row['measured']} |" in text for row in rows)
    assert f"{sum(row['measured'] == row['ghost'] for row in rows)} of {len(rows)} end as predicted" in text
