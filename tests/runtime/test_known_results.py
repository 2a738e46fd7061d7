"""What is answered without asking torch is what torch answers, and nobody else's storage."""

from __future__ import annotations

import random
from typing import Any

import pytest
import torch

from runtime.simulate.known_results import KnownResults

aten = torch.ops.aten


def _meta(*shape: int, dtype: torch.dtype = torch.float32) -> torch.Tensor:
    return torch.empty(*shape, dtype=dtype, device="meta")


def _look(out: Any) -> Any:
    if isinstance(out, torch.Tensor):
        return out.shape, out.stride(), out.dtype, out.untyped_storage().nbytes()
    return type(out), [_look(one) for one in out]


def _draw(dice: random.Random) -> tuple[Any, tuple[Any, ...]]:
    dtypes = (torch.float32, torch.bfloat16, torch.int64, torch.int32)
    rows, columns = dice.randint(1, 4), dice.randint(1, 4)
    tensor, number = _meta(rows, columns, dtype=dice.choice(dtypes)), dice.choice([1, 1.0, True, 2, 0.5])
    if dice.random() < 0.5:
        tensor = tensor.t()
    other = _meta(*tensor.shape, dtype=dice.choice(dtypes))
    calls = [
        (aten.add.Tensor, (tensor, dice.choice([number, other]))),
        (aten.mul.Tensor, (tensor, dice.choice([number, other]))),
        (aten.div.Tensor, (tensor, number)),
        (aten.sum.dim_IntList, (tensor, [dice.randint(0, 1)], dice.random() < 0.5)),
        (aten.cat.default, ([tensor, other], dice.randint(0, 1))),
        (aten._to_copy.default, (tensor,)),
        (aten.clone.default, (tensor,)),
        (aten.native_layer_norm.default, (_meta(rows, columns), [columns], None, None, 1e-5)),
    ]
    return dice.choice(calls)


def test_ops_by_chance_are_answered_as_torch_answers_them() -> None:
    dice, known = random.Random(3), KnownResults()
    for _ in range(3000):
        func, args = _draw(dice)
        assert _look(known.run(func, args, {})) == _look(func(*args)), (func, args)


def test_what_is_known_is_not_asked_again() -> None:
    asked, known = [], KnownResults()

    def add(*args: Any) -> torch.Tensor:
        asked.append(args)
        return torch.add(*args)

    for number in (1, 1.0, 1, True, 1.0):
        known.run(add, (_meta(2, 3, dtype=torch.int64), number), {})
    assert len(asked) == 3


def test_a_view_that_its_schema_hides_stays_one() -> None:
    known, rows = KnownResults(), _meta(4, 6)
    for _ in range(3):
        out = known.run(aten._unsafe_view.default, (rows, [24]), {})
        assert out.untyped_storage()._cdata == rows.untyped_storage()._cdata


@pytest.mark.parametrize("other", [torch.ones(()), torch.ones(3), torch.ones((), device="meta")])
def test_what_may_stand_for_a_number_or_lies_elsewhere_is_torchs_to_answer(other: torch.Tensor) -> None:
    asked, known = [], KnownResults()

    def keep(*args: torch.Tensor) -> torch.Tensor:
        asked.append(args)
        return _meta(2)

    for _ in range(2):
        known.run(keep, (_meta(3), other), {})
    assert len(asked) == 2


def test_parts_of_one_storage_are_torchs_to_answer() -> None:
    known, asked = KnownResults(), []

    def halves(rows: torch.Tensor) -> tuple[torch.Tensor, ...]:
        asked.append(rows)
        whole = _meta(4)
        return whole[:4], whole[:4]

    for _ in range(2):
        one, other = known.run(halves, (_meta(3),), {})
        assert one.untyped_storage()._cdata == other.untyped_storage()._cdata
    assert len(asked) == 2


def test_another_default_is_another_result() -> None:
    known = KnownResults()
    assert known.run(torch.zeros, (3,), {"device": torch.device("meta")}).dtype == torch.float32
    torch.set_default_dtype(torch.float64)
    try:
        assert known.run(torch.zeros, (3,), {"device": torch.device("meta")}).dtype == torch.float64
    finally:
        torch.set_default_dtype(torch.float32)
