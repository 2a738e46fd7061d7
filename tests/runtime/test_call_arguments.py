"""Arguments of a recorded call, made of data: their sizes, what shares memory, and numbers that are valid."""

from typing import Any

import pytest
import torch

from runtime.flashinfer.arguments import Maker, Pool, expert_count, fill
from runtime.flashinfer.inside.describe import Description
from runtime.record.arguments import check_arguments

CPU = torch.device("cpu")


def made_again(*arguments: Any, experts: int = 4) -> list[Any]:
    description = Description(lambda _: None)
    told = description.of(arguments, {})
    assert not description.unknown
    check_arguments(told["arguments"], [one["bytes"] for one in told["storages"]], "call.arguments")
    maker = Maker(told["storages"], experts, Pool(CPU))
    return [maker.one(value, "x") for value in told["arguments"]]


PLAIN = [None, True, 7, 0.5, float("inf"), "word", torch.bfloat16, CPU]


@pytest.mark.parametrize("value", [*PLAIN, (1, None), [1, [2.0]], {"a", "b"}, {1: "x"}])
def test_a_value_is_itself_again(value: Any) -> None:
    (again,) = made_again(value)
    assert again == value and type(again) is type(value)


def test_tensors_keep_their_sizes_and_what_they_share() -> None:
    whole = torch.zeros(6, 8)
    rows, turned, other = whole[2:4], whole.t(), torch.zeros(3, dtype=torch.int32)
    first, second, third, fourth = made_again(whole, rows, turned, other)
    assert first.shape == (6, 8) and second.shape == (2, 8) and third.stride() == (1, 8)
    assert second.data_ptr() == first.data_ptr() + 2 * 8 * 4
    assert third.untyped_storage().data_ptr() == first.untyped_storage().data_ptr()
    assert fourth.untyped_storage().data_ptr() != first.untyped_storage().data_ptr()


def test_only_the_bytes_that_are_reached_are_made() -> None:
    part = torch.zeros(1 << 20)[(1 << 19) : (1 << 19) + 16]
    (again,) = made_again(part)
    assert again.shape == (16,) and again.untyped_storage().nbytes() <= 64 + 512


def test_what_is_no_data_is_named() -> None:
    description = Description(lambda _: None)
    description.of([object(), lambda: None], {"plan": torch.zeros(2, device="meta")})
    assert description.unknown == ["builtins.object", "builtins.function", "a torch.strided tensor on meta"]


@pytest.mark.parametrize("dtype", [torch.float8_e4m3fn, torch.float8_e5m2, torch.bfloat16, torch.float32])
@pytest.mark.parametrize("name", ["fc1_expert_weights", "input_scale", "x"])
def test_numbers_are_finite(dtype: torch.dtype, name: str) -> None:
    tensor = torch.empty(4, 64, 32, dtype=dtype)
    fill(tensor, name, 4)
    assert tensor.float().isfinite().all() and tensor.float().abs().max() < 10
    assert "scale" not in name or (tensor.float() == 1.0).all()


@pytest.mark.parametrize("name", ["token_selected_experts", "topk_ids", "expert_ids"])
def test_ids_are_in_range_and_differ_within_a_row(name: str) -> None:
    ids = torch.full((300, 8), -1, dtype=torch.int32)
    fill(ids, name, 128)
    assert ids.min() == 0 and ids.max() == 127
    assert all(len(set(row)) == 8 for row in ids.tolist())
    counts = torch.bincount(ids.flatten(), minlength=128)
    assert counts.max() - counts.min() <= 1


def test_experts_are_those_of_all_ranks() -> None:
    weights = {"tensor": {"shape": [32, 8, 8]}}
    assert expert_count({"fc1": weights, "ep_size": 4}) == 128
    assert expert_count({"fc1": weights, "ep_size": 4, "num_experts": 130}) == 130
    assert expert_count({}) == 1
