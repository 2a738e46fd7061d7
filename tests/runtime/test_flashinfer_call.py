"""Options that a function of FlashInfer does not take yet are left out where that changes nothing."""

import pytest

from runtime.moe.flashinfer_call import call_with
from runtime.server.errors import ConfigError


def _older(input: str, output: str = "") -> str:
    return f"own place for {input}"


def test_the_result_lies_in_the_place_that_was_given() -> None:
    given = {"input": "x", "output": "out", "use_fused_finalize": False}
    assert call_with(lambda input, output, use_fused_finalize: input, given) == "out"
    assert call_with(_older, {"input": "x", "output": "out"}) == "out"


def test_a_version_that_takes_no_place_returns_its_own() -> None:
    given = {"input": "x", "output": "out"}
    assert call_with(lambda input: f"own place for {input}", given) == "own place for x"


def test_an_option_that_is_not_used_is_left_out() -> None:
    arguments = {"input": "x", "output": "out", "per_token_scale": None}
    assert call_with(_older, arguments) == "out"


def test_what_it_cannot_do_is_refused_by_name() -> None:
    with pytest.raises(ConfigError, match="_older does not take use_fused_finalize") as caught:
        call_with(_older, {"input": "x", "output": "out", "use_fused_finalize": False})
    assert "FlashInfer" in (caught.value.remedy or "")
