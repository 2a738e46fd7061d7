"""MiniMax-M3 by releases with a class of it, and by one that has none."""

from __future__ import annotations

import pytest

from runtime.server.unserved import unserved
from tests.oracle.published import published
from tests.server.asking import Checkpoint, server

M3 = Checkpoint(published()["MiniMaxAI/MiniMax-M3"].config)
MXFP8 = Checkpoint(published()["MiniMaxAI/MiniMax-M3-MXFP8"].config)


def test_before_its_class_no_rule_names_it() -> None:
    """As 0.5.15 was asked: the section of its encoder is transformers', which has its sizes."""
    found = server(M3, 15, "H100", tp_size=8)
    assert (found.moe_runner_backend, found.quantization) == ("auto", None)
    assert found.mem_fraction_static == pytest.approx(0.693, abs=5e-4)
    packed = server(MXFP8, 15, "RTX PRO 6000", tp_size=8)
    assert (packed.moe_runner_backend, packed.quantization, packed.tunes) == ("auto", None, False)


@pytest.mark.parametrize("version", [15, 16])
def test_which_releases_have_its_layers(version: int) -> None:
    found = server(M3, version, "H100", tp_size=8)
    said = unserved(M3.model_config(), found, M3.architecture)
    assert (said is not None and "releases before 0.5.16" in said.why) is (version == 15)
    assert found.moe_runner_backend == ("triton" if version == 16 else "auto")
