"""Which parameters a Triton kernel writes through is read from its source."""

import ast
import textwrap
from typing import Any

from runtime.ghost.inside.stores import stored


class Kernel:
    """The members of `triton.JITFunction` that are used: a function's source and its parameters' names."""

    def __init__(self, source: str, scope: dict[str, Any] | None = None) -> None:
        self._tree = ast.parse(textwrap.dedent(source))
        self.arg_names = [one.arg for one in self._tree.body[0].args.args]  # type: ignore[attr-defined]
        self.fn = type("fn", (), {"__globals__": scope or {}})

    def parse(self) -> ast.Module:
        return self._tree


def test_a_pointer_is_followed_through_arithmetic_to_its_store() -> None:
    kernel = Kernel("""
        def kernel(out_ptr, in_ptr, stride, BLOCK: tl.constexpr):
            row = tl.program_id(0)
            base = out_ptr + row * stride
            base += 4
            tl.store(base + tl.arange(0, BLOCK), tl.load(in_ptr + row), mask=row < stride)
        """)
    assert stored(kernel) == {"out_ptr", "stride"}


def test_a_loop_passes_a_pointer_to_an_earlier_line() -> None:
    kernel = Kernel("""
        def kernel(out_ptr, spare_ptr, count):
            here = there = spare_ptr
            for _ in range(count):
                tl.store(here, 0)
                here = there
                there = out_ptr
        """)
    assert stored(kernel) == {"out_ptr", "spare_ptr"}


def test_an_index_that_was_loaded_is_not_written() -> None:
    kernel = Kernel("""
        def kernel(out_ptr, lengths_ptr):
            begin = tl.load(lengths_ptr + tl.program_id(0))
            tl.store(out_ptr + begin, begin)
        """)
    assert stored(kernel) == {"out_ptr"}


def test_a_helper_that_stores_makes_its_caller_store() -> None:
    helper = Kernel("""
        def helper(at, value):
            tl.atomic_add(at, value)
        """)
    kernel = Kernel(
        """
        def kernel(counts_ptr, in_ptr):
            helper(counts_ptr + 1, value=tl.load(in_ptr))
        """,
        {"helper": helper},
    )
    assert stored(kernel) == {"counts_ptr"}


def test_what_an_unknown_function_gets_counts_as_written() -> None:
    kernel = Kernel("""
        def kernel(a_ptr, b_ptr):
            unknown(a_ptr)
            tl.store(b_ptr, 1)
        """)
    assert stored(kernel) == {"a_ptr", "b_ptr"}


def test_a_pointer_that_a_loop_advances_is_followed() -> None:
    kernel = Kernel("""
        def kernel(out_ptr, other_ptr, count):
            here = other_ptr
            for step in range(count):
                tl.store(here, step)
                here = out_ptr
        """)
    assert {"out_ptr", "other_ptr"} <= stored(kernel)


def test_a_descriptor_is_followed_to_its_own_store() -> None:
    kernel = Kernel("""
        def kernel(out_ptr, in_ptr, rows):
            out = tl.make_tensor_descriptor(out_ptr, shape=[rows], strides=[1], block_shape=[16])
            out.store([0], in_ptr)
        """)
    assert "out_ptr" in stored(kernel)


def test_source_that_cannot_be_read_means_that_all_is_written() -> None:
    class Unreadable(Kernel):
        def parse(self) -> ast.Module:
            raise OSError("no source")

    kernel = Unreadable("def kernel(a, b): pass")
    assert stored(kernel) == {"a", "b"}
