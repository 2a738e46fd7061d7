"""Options that a function of FlashInfer does not take yet are left out where that changes nothing."""

from typing import Any

import pytest

from runtime.moe.flashinfer_call import call_with
from runtime.server.errors import ConfigError


def _older(input: str, output: str = "") -> str:
    return f"own place for {input}"


def _oldest(input: str) -> str:
    return f"own place for {input}"


def _newer(input: str, output: str, use_fused_finalize: bool) -> list[Any]:
    return [input, output, use_fused_finalize]


def test_the_result_lies_in_the_place_that_was_given() -> None:
    assert call_with(_newer, {"input": "x", "output": "out", "use_fused_finalize": False}) == "out"
    assert call_with(_older, {"input": "x", "output": "out"}) == "out"


def test_a_version_that_takes_no_place_returns_its_own() -> None:
    assert call_with(_oldest, {"input": "x", "output": "out"}) == "own place for x"


def test_an_option_that_is_not_used_is_left_out() -> None:
    arguments = {"input": "x", "output": "out", "per_token_scale": None}
    assert call_with(_older, arguments) == "out"


def test_what_it_cannot_do_is_refused_by_name() -> None:
    with pytest.raises(ConfigError, match="_older does not take use_fused_finalize") as caught:
        call_with(_older, {"input": "x", "output": "out", "use_fused_finalize": False})
    assert "FlashInfer" in (caught.value.remedy or "")
