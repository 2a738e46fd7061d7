"""A tensor that a launched kernel only reads keeps its values, though the kernel does not run."""

from pathlib import Path

import pytest

from runtime.ghost.inside.sources import verdict
from tests.ghost.test_inside_sources import module

QUANTIZE = """
using tvm::ffi::TensorView;
constexpr bool kLater = sizeof(int) == 4;
inline void check(TensorView view, int64_t rank) { CHECK(view.ndim() == rank && view.is_contiguous()); }
inline void fill(TensorView view, float value) {
  own::Launch(1, 1, view.device())(kernel<float>, static_cast<float*>(view.data_ptr()), value);
}
template <bool kStatic, bool kSkip, typename T>
void both(TensorView input, TensorView output, TensorView scale) {
  check(input, 2);
  check(scale, 1);
  if constexpr (!kStatic) {
    own::Launch(1, 1, input.device())(kernel<float>, static_cast<float*>(scale.data_ptr()), 1.f);
  } else {
    CHECK(scale.size(0) == 1);
  }
  if constexpr (!kSkip) {
    own::Launch(input.size(0), 1, input.device())(
        kernel<T>, static_cast<const T*>(input.data_ptr()), static_cast<T*>(output.data_ptr()),
        static_cast<const float*>(scale.data_ptr()));
  }
}
template <bool kStatic, typename T>
void quantize(TensorView input, TensorView output, TensorView scale) {
  both<kStatic, false, T>(input, output, scale);
  %s
}
"""


def read(tmp_path: Path, export: str, more: str = "") -> frozenset[int]:
    made = module(tmp_path, before=QUANTIZE % more, export=export)
    return frozenset(verdict.only_read(made, "run_op"))


def test_what_is_handed_on_as_constant_is_read(tmp_path: Path) -> None:
    assert read(tmp_path, "(quantize<true, bf16_t>)") == {0, 2}


def test_a_branch_that_is_compiled_counts(tmp_path: Path) -> None:
    assert read(tmp_path, "(quantize<false, bf16_t>)") == {0}


def test_a_condition_that_is_not_told_counts_as_true(tmp_path: Path) -> None:
    assert read(tmp_path, "(quantize<kLater, bf16_t>)") == {0}


@pytest.mark.parametrize(
    "use",
    [
        "fill(scale, 0.f);",
        "auto other = scale;",
        "auto at = scale.data_ptr();",
        "auto at = static_cast<float*>(scale.data_ptr());",
        "auto at = (const float*)(scale.data_ptr());",
        "auto later = [scale] { return 1; };",
        "std::vector<TensorView> all{scale};",
        "std::swap(scale, output);",
    ],
)
def test_any_other_use_may_write(tmp_path: Path, use: str) -> None:
    assert read(tmp_path, "(quantize<true, bf16_t>)", use) == {0}


KERNEL = "} using words_t = int4*; __global__ void again"


@pytest.mark.parametrize(
    ("more", "reads"),
    [
        (KERNEL + "(const void* input) { store(const_cast<void*>(input));", set()),
        (KERNEL + "(const void* input) { store((float*)input);", set()),
        (KERNEL + "(const void* input) { ((int4*)(input))[0] = zero();", set()),
        (KERNEL + "(const float* input) { (float* __restrict__)input;", set()),
        (KERNEL + "(const void* const* inputs) { ((const void**)inputs)[0] = nullptr;", set()),
        (KERNEL + "(const T* input) { store((std::remove_const_t<T>*)&input[1]);", set()),
        (KERNEL + "(const void* input) { words_t words = (words_t)input;", set()),
        (KERNEL + "(const void* input) { words_t words = words_t(input);", set()),
        (KERNEL + "(const void* input) { typedef float* floats; store(floats(input));", set()),
        (KERNEL + "(T* input) { store((int*)input);", set()),
        (KERNEL + "(const void* input) { auto words = (const int4*)input;", {0, 2}),
        (KERNEL + "(float* sum) { atomicMax((int*)sum, 1); void* none = (void*)nullptr;", {0, 2}),
        (KERNEL + "(int count) { words_t words; int bytes = sizeof(float*) * (count) * 2;", {0, 2}),
        ("} inline void check(TensorView view, float by) { fill(view, by);", set()),  # of the same name
        ("cudaMalloc(0, 1);", set()),
    ],
)
def test_what_else_a_module_does_counts(tmp_path: Path, more: str, reads: set[int]) -> None:
    assert read(tmp_path, "(quantize<true, bf16_t>)", more) == reads
