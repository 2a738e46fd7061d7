"""The tracker counts every storage while it lives, knows what a peak held, and folds what repeats."""

import re
from collections.abc import Iterator
from contextlib import AbstractContextManager, contextmanager, nullcontext
from functools import partial

import pytest
import torch
import torch.nn.functional as F

from runtime.devices.layer_loop import each_layer, loop_with
from runtime.layers.norm import RMSNorm
from runtime.server.units import MIB
from runtime.simulate.allocator import CachingAllocator
from runtime.simulate.folding import fold, record, replay
from runtime.simulate.kernel import kernel
from runtime.simulate.tracker import AllocationTracker


@contextmanager
def _tracking(device: str = "meta", **options: object) -> Iterator[AllocationTracker]:
    tracker = AllocationTracker(CachingAllocator(), device, **options)  # type: ignore[arg-type]
    with tracker, torch.inference_mode():
        yield tracker


def _folding(tracker: AllocationTracker) -> AbstractContextManager[None]:
    return loop_with(partial(fold, tracker=tracker))


@pytest.mark.parametrize("device", ["meta", "cpu"])
def test_storages_count_while_they_live(device: str) -> None:
    with _tracking(device) as tracker:
        x = torch.empty(4, MIB, dtype=torch.uint8, device=device)
        y = x + 1
        assert tracker.allocator.allocated == 8 * MIB
        del x
        assert tracker.allocator.allocated == 4 * MIB
        del y
    assert tracker.allocator.allocated == 0


def test_views_and_in_place_ops_allocate_nothing() -> None:
    with _tracking() as tracker:
        x = torch.zeros(8, 128, device="meta")
        held = tracker.allocator.allocated
        y = x.view(128, 8).t()[1:]
        y.add_(1)
        x.copy_(x)
        assert tracker.allocator.allocated == held
        del x
        assert tracker.allocator.allocated == held, "the view keeps the storage"


def test_a_view_of_an_untracked_tensor_is_not_taken_for_a_new_one() -> None:
    before = torch.zeros(MIB, device="meta")
    with _tracking() as tracker:
        before.view(2, -1).t()
        assert tracker.allocator.allocated == 0


def test_other_devices_are_not_counted() -> None:
    with _tracking() as tracker:
        torch.zeros(MIB)
        assert tracker.allocator.allocated == 0
        torch.arange(4).to("meta")
        assert tracker.allocator.peak_allocated == 512


def test_every_result_of_an_op_counts() -> None:
    with _tracking() as tracker:
        values, indices = torch.zeros(4, 1024, device="meta").topk(8)
        assert (values.nbytes, indices.nbytes) == (128, 256)
        assert tracker.allocator.allocated == 2 * 512


def test_the_largest_at_the_peak_are_those_live_then() -> None:
    with _tracking() as tracker:
        kept = torch.zeros(2 * MIB, dtype=torch.uint8, device="meta")
        gone = torch.zeros(3 * MIB, dtype=torch.uint8, device="meta")
        del gone
        later = torch.zeros(MIB, dtype=torch.uint8, device="meta")
        largest = tracker.largest_at_peak(5)
        assert [a.nbytes for a in largest] == [3 * MIB, 2 * MIB]
        assert largest[0].what == f"zeros [{3 * MIB}] uint8"
        tracker.reset_peak()
        assert tracker.largest_at_peak(5) == []
        last = torch.zeros(MIB, dtype=torch.uint8, device="meta")
        assert [a.nbytes for a in tracker.largest_at_peak(5)] == [MIB]
    del kept, later, last


def test_the_runtime_line_that_allocated_is_named() -> None:
    with _tracking() as tracker:
        norm = RMSNorm("norm", 8, 1e-6, torch.bfloat16, torch.device("meta"))
        held = tracker.allocation_of(norm.weight)
        assert held is not None
        assert re.fullmatch(r"layers/norm\.py:\d+ __init__", held.where)
        mine = tracker.allocation_of(torch.zeros(4, device="meta"))
        assert mine is not None
        assert mine.where == ""


def test_log_names_phase_shape_and_bytes() -> None:
    with _tracking(log=True) as tracker:
        tracker.phase = "weights"
        torch.zeros(3, 5, device="meta")
    assert tracker.log is not None
    [entry] = tracker.log
    assert (entry.phase, entry.nbytes, entry.op, entry.shape) == ("weights", 60, "zeros", (3, 5))


class TestWorkspaces:
    def test_a_gemm_takes_the_cublas_workspace_once_a_stream(self) -> None:
        with _tracking(gemm_bytes=32 * MIB) as tracker:
            a = torch.zeros(16, 16, device="meta")
            a @ a
            a @ a
            assert tracker.allocator.allocated == 32 * MIB + 1024
            tracker.stream = 1
            a @ a
            assert tracker.allocator.allocated == 64 * MIB + 1024

    def test_a_declared_workspace_lives_while_its_kernel_runs(self) -> None:
        @kernel(torch.empty_like, lambda x: [3 * x.nbytes, 5 * MIB])
        def copied(x: torch.Tensor) -> torch.Tensor:
            return x.clone()

        with _tracking() as tracker:
            a = torch.zeros(MIB, dtype=torch.uint8, device="meta")
            copied(a)
            assert tracker.allocator.peak_allocated == (1 + 1 + 3 + 5) * MIB
            assert tracker.allocator.allocated == MIB


class TestFolding:
    """A stack of MLPs with residuals: two blocks of hidden states that layers trade, and temporaries."""

    def _forward(self, widths: list[int], rows: int = 64) -> torch.Tensor:
        x = torch.zeros(rows, 512, device="meta")
        for width in each_layer(widths, kind=lambda width: width):
            up = torch.zeros(512, width, device="meta")
            x = x + F.silu(x @ up) @ torch.zeros(width, 512, device="meta")
        return x

    @pytest.mark.parametrize("widths", [[1024] * 40, [1024] * 3 + [4096] * 30, [2048], [64, 128] * 6])
    def test_folded_and_unfolded_leave_the_allocator_alike(self, widths: list[int]) -> None:
        seen = []
        for folded in (True, False):
            with _tracking(gemm_bytes=32 * MIB) as tracker:
                kept = torch.zeros(7 * MIB, dtype=torch.uint8, device="meta")
                with _folding(tracker) if folded else nullcontext():
                    out = self._forward(widths)
                model = tracker.allocator
                numbers = (model.peak_allocated, model.peak_reserved, model.allocated, model.reserved)
                seen.append((*numbers, [a.nbytes for a in tracker.largest_at_peak(9)]))
                assert tracker.allocation_of(out) is not None
                del kept, out
                assert model.allocated == 32 * MIB
        assert seen[0] == seen[1]

    def test_folding_runs_few_layers(self) -> None:
        ran = []
        with _tracking() as tracker, _folding(tracker):
            for layer in each_layer(range(100), kind=lambda layer: None):
                ran.append(layer)
                torch.zeros(MIB, device="meta")
        assert len(ran) == 3

    def test_layers_that_keep_something_all_count(self) -> None:
        kept = []
        with _tracking() as tracker, _folding(tracker):
            for _ in each_layer(range(50), kind=lambda layer: None):
                kept.append(torch.zeros(MIB, dtype=torch.uint8, device="meta"))
                previous = kept[-2:]
            assert tracker.allocator.allocated == 50 * MIB
        del previous

    def test_without_folding_every_layer_runs(self) -> None:
        assert list(each_layer([1, 2, 3], kind=lambda layer: None)) == [1, 2, 3]

    def test_a_recording_replays_what_ran(self) -> None:
        peaks = []
        for replayed in (True, False):
            with _tracking() as tracker, _folding(tracker):
                out, recording = record(lambda: self._forward([1024] * 20), tracker)
                assert recording is not None
                del out
                tracker.reset_peak()
                if replayed:
                    [copy] = replay(recording, tracker).values()
                    tracker.free(copy)
                else:
                    self._forward([1024] * 20)
                model = tracker.allocator
                peaks.append((model.peak_allocated, model.peak_reserved, model.allocated))
        assert peaks[0] == peaks[1]

    def test_a_run_that_leaves_more_than_its_result_is_not_replayed(self) -> None:
        kept = []

        def run() -> torch.Tensor:
            kept.append(torch.zeros(MIB, device="meta"))
            return torch.zeros(MIB, device="meta")

        with _tracking() as tracker:
            assert record(run, tracker)[1] is None
