"""Combinations of flags that SGLang's own checks refuse, a module a concern; `check_refusals` runs them."""

from runtime.server.checks.refusals import ROWS, check_before_blocks, check_refusals

__all__ = ["ROWS", "check_before_blocks", "check_refusals"]
