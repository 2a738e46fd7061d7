"""The allocator model against torch on this GPU: random mallocs and frees, compared after every step.

    PYTHONPATH=. python benchmarks/allocator_model.py --out allocator_model.json

Two models run beside torch. One is told where the driver put each segment, so it must agree on every address
as well as on allocated, reserved and requested bytes. The other places segments itself, as a prediction has
to, and must agree on the bytes. Then the GPU is filled until torch raises, and the messages are compared.
"""

from __future__ import annotations

import argparse
import json
import random
import re
from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import Any

import torch

from benchmarks.record import write_record
from runtime.server.units import GIB, MIB
from runtime.simulate.addresses import AddressSpace
from runtime.simulate.allocator import Block, CachingAllocator
from runtime.simulate.oom import SimulatedOutOfMemory

SIZE_CLASSES = ((1, MIB, 5), (MIB, 10 * MIB, 3), (10 * MIB, 300 * MIB, 2))  # low, high, weight
COUNTERS = ("allocated", "reserved", "requested")


class MeasuredAddresses(AddressSpace):
    """A new segment begins where torch's new block does."""

    def __init__(self) -> None:
        super().__init__()
        self.next = 0

    def take(self, nbytes: int) -> int:
        return self.next

    def give(self, address: int, nbytes: int) -> None:
        pass


@dataclass(frozen=True)
class Step:
    action: str  # malloc | free | empty_cache
    nbytes: int = 0
    stream: int = 0
    victim: int = 0


@dataclass
class Outcome:
    steps: int = 0
    addresses_equal: int = 0
    measured_equal: int = 0
    predicted_equal: int = 0
    first_divergence: dict[str, Any] = field(default_factory=dict)
    segments: list[tuple[int, int, int]] = field(default_factory=list)  # step, address, bytes
    peak_reserved: int = 0


def random_steps(count: int, seed: int, streams: int) -> Iterator[Step]:
    """Sizes of all three classes, often one seen before, so that ties between equal blocks occur."""
    rng = random.Random(seed)
    live, seen = 0, [512, 2 * MIB, 20 * MIB]
    for i in range(count):
        if i % 997 == 996:
            yield Step("empty_cache")
        elif live and (live > 300 or rng.random() < 0.48):
            live -= 1
            yield Step("free", victim=rng.randrange(live + 1))
        else:
            live += 1
            low, high, _ = rng.choices(SIZE_CLASSES, weights=[w for *_, w in SIZE_CLASSES])[0]
            nbytes = rng.choice(seen) if rng.random() < 0.3 else rng.randint(low, high)
            seen.append(nbytes)
            yield Step("malloc", nbytes, rng.randrange(streams) if rng.random() < 0.3 else 0)


class Lockstep:
    """torch and both models, one step at a time."""

    def __init__(self, streams: int) -> None:
        total = torch.cuda.mem_get_info()[1]
        self.streams = [torch.cuda.default_stream(), *(torch.cuda.Stream() for _ in range(1, streams))]
        self.measured_addresses = MeasuredAddresses()
        self.measured = CachingAllocator(total, addresses=self.measured_addresses)
        self.predicted = CachingAllocator(total)
        self.live: list[tuple[int, Block, Block]] = []

    def run(self, step: Step) -> bool:
        """Take the step everywhere; whether the told model chose torch's address."""
        if step.action == "empty_cache":
            torch.cuda.empty_cache()
            self.measured.empty_cache()
            self.predicted.empty_cache()
        elif step.action == "free":
            pointer, measured, predicted = self.live.pop(step.victim)
            torch.cuda.caching_allocator_delete(pointer)
            self.measured.free(measured)
            self.predicted.free(predicted)
        else:
            pointer = torch.cuda.caching_allocator_alloc(step.nbytes, stream=self.streams[step.stream])
            self.measured_addresses.next = pointer
            block = self.measured.malloc(step.nbytes, step.stream)
            self.live.append((pointer, block, self.predicted.malloc(step.nbytes, step.stream)))
            return block.address == pointer
        return True

    def close(self) -> None:
        for pointer, *_ in self.live:
            torch.cuda.caching_allocator_delete(pointer)
        torch.cuda.empty_cache()


def torch_bytes() -> tuple[int, int, int]:
    stats = torch.cuda.memory_stats_as_nested_dict()
    allocated, reserved, requested = (stats[f"{name}_bytes"]["all"]["current"] for name in COUNTERS)
    return allocated, reserved, requested


def model_bytes(model: CachingAllocator) -> tuple[int, int, int]:
    return model.allocated, model.reserved, model.requested


def compare(steps: int, seed: int, streams: int) -> Outcome:
    torch.cuda.init()
    torch.cuda.empty_cache()
    if any(base := torch_bytes()):
        raise SystemExit(
            f"torch already holds (allocated, reserved, requested) = {base} bytes: run this alone"
        )
    outcome, pair = Outcome(), Lockstep(streams)
    for i, step in enumerate(random_steps(steps, seed, streams)):
        known = len(pair.measured.segments)
        same_address = pair.run(step)
        if len(pair.measured.segments) > known:
            address, segment = next(reversed(pair.measured.segments.items()))
            outcome.segments.append((i, address, segment.size))
        real = torch_bytes()
        outcome.steps += 1
        outcome.addresses_equal += same_address
        for name, model in (("measured", pair.measured), ("predicted", pair.predicted)):
            equal = model_bytes(model) == real
            setattr(outcome, f"{name}_equal", getattr(outcome, f"{name}_equal") + equal)
            if not equal and name not in outcome.first_divergence:
                outcome.first_divergence[name] = {
                    "index": i,
                    "step": vars(step),
                    "torch": dict(zip(COUNTERS, real, strict=True)),
                    "model": dict(zip(COUNTERS, model_bytes(model), strict=True)),
                    "live": len(pair.live),
                }
        outcome.peak_reserved = max(outcome.peak_reserved, real[1])
    pair.close()
    return outcome


def compare_oom() -> dict[str, Any]:
    """Fill the GPU with blocks of 1 to 6 GiB, give some back, go on until torch raises."""
    torch.cuda.empty_cache()
    free, total = torch.cuda.mem_get_info()
    model = CachingAllocator(total, non_torch=total - free)
    rng, live = random.Random(0), []
    try:
        for i in range(1000):
            if live and i % 3 == 2:
                pointer, block = live.pop(rng.randrange(len(live)))
                torch.cuda.caching_allocator_delete(pointer)
                model.free(block)
                continue
            nbytes = rng.randint(GIB, 6 * GIB)
            real, predicted = _attempt(nbytes, model, live)
            if real or predicted:
                numbers = [_numbers(real), _numbers(predicted)]
                return {"nbytes": nbytes, "torch": real, "model": predicted, "numbers": numbers}
    finally:
        for pointer, _ in live:
            torch.cuda.caching_allocator_delete(pointer)
        torch.cuda.empty_cache()
    return {}


def _attempt(nbytes: int, model: CachingAllocator, live: list[tuple[int, Block]]) -> tuple[str, str]:
    pointer, block, real, predicted = 0, None, "", ""
    try:
        pointer = torch.cuda.caching_allocator_alloc(nbytes)
    except torch.OutOfMemoryError as error:
        real = str(error)
    try:
        block = model.malloc(nbytes)
    except SimulatedOutOfMemory as error:
        predicted = str(error)
    if pointer and block is not None:
        live.append((pointer, block))
    elif pointer:
        torch.cuda.caching_allocator_delete(pointer)
    return real, predicted


def _numbers(message: str) -> list[str]:
    return re.findall(r"[\d.]+ (?:GiB|MiB|KiB|bytes)", message)


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--steps", type=int, default=10_000)
    parser.add_argument("--seeds", type=int, default=5)
    parser.add_argument("--streams", type=int, default=2)
    parser.add_argument("--out", help="write the record here (default: $OUT or benchmarks/results)")
    args = parser.parse_args()
    torch.zeros(1, device="cuda")  # the context, before free memory is read
    rows = []
    print(
        f"{'seed':>4} {'steps':>6} {'addresses':>10} {'told':>6} {'own placement':>14} {'peak reserved':>14}"
    )
    for seed in range(args.seeds):
        outcome = compare(args.steps, seed, args.streams)
        rows.append({"seed": seed, **vars(outcome)})
        print(
            f"{seed:>4} {outcome.steps:>6} {outcome.addresses_equal:>10} {outcome.measured_equal:>6} "
            f"{outcome.predicted_equal:>14} {outcome.peak_reserved / GIB:>10.2f} GiB"
        )
        for name, where in outcome.first_divergence.items():
            print(f"     first divergence ({name}): {json.dumps(where)}")
    oom = compare_oom()
    print("out of memory, numbers printed:", *(oom.get("numbers") or ["none raised"]), sep="\n  ")
    path = write_record("allocator_model", {"seeds": rows, "oom": oom}, args.out)
    print(f"written to {path}")


if __name__ == "__main__":
    main()
