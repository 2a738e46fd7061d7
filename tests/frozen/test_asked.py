"""Asks a dozen of the frozen questions in the smallest environment that starts here."""

from tests.frozen.__main__ import answered, page
from tests.frozen.questions import frozen, write_models
from tests.ghost.stock import GPU, Stock

RELEASE, NUMBERS = "0.5.17", (9, 11, 12, 14, 17, 18, 23, 27, 47, 48, 57, 58)  # two of them are refused


def test_a_dozen_commands_are_answered_as_the_wheels_answered_them(stock: Stock) -> None:
    write_models(stock.work)
    questions = frozen(RELEASE).questions
    assert {questions[number].gpu for number in NUMBERS} == {GPU.key.upper()}
    asked = [answered(questions[number], stock.process) for number in NUMBERS]
    how = [one.verdict.how for one in asked]
    assert (how.count("equal"), how.count("refused equally")) == (10, 2), "\n".join(page(RELEASE, asked))
