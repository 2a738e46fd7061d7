"""What a release makes of sparse attention's kernels: arg_groups/overrides.py, and srt/layers/attention."""

from __future__ import annotations

from typing import NamedTuple


class SparseRules(NamedTuple):
    """`has_raw_tilelang`: of rows in fp8 without scales; `casts_rows`: flashmla_sparse_q8 makes eight bits of
    whatever its cache holds."""

    has_glms_kernel: bool = False
    lays_out_by_role: bool = False  # by the kernel that this role runs
    sinks_choose: bool = False
    has_raw_tilelang: bool = False
    casts_rows: bool = False


SPARSE_12 = SparseRules()
SPARSE_17 = SPARSE_12._replace(has_glms_kernel=True)
SPARSE_20 = SPARSE_17._replace(lays_out_by_role=True, sinks_choose=True)
SPARSE_22 = SPARSE_20._replace(has_raw_tilelang=True, casts_rows=True)
