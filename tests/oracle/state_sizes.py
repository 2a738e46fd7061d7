"""Asks each release's own arithmetic how many states and requests a server has, and keeps the answers.

python -m tests.oracle.state_sizes --seed 1 --count 40
"""

from __future__ import annotations

import argparse
import ast
import gzip
import json
import random
from collections.abc import Iterator
from pathlib import Path
from types import SimpleNamespace
from typing import Any

from runtime.server.releases import RELEASES
from tests.oracle.wheels import WORK, wheel_of

RECORDED = Path(__file__).parent / "recorded/state_sizes.jsonl.gz"
_GIB = 1 << 30
_FILES = ("mem_cache/kv_cache_configurator.py", "model_executor/model_runner_kv_cache_mixin.py")
_ASKED = ("handle_max_mamba_cache", "calculate_mamba_ratio", "resolve_max_num_reqs")


def draw(dice: random.Random) -> dict[str, Any]:
    """A hybrid, a layout, what is free and what was asked."""
    tp, dp = dice.choice(((1, 1), (2, 1), (4, 1), (4, 2), (4, 4), (8, 8)))
    kind = dice.choice(("delta", "delta", "mamba", "kimi", "lightning", "beside"))
    layers = dice.choice((8, 24, 48, 52))
    every = dice.choice((2, 4, 6))  # all of those whose recurrence is beside attention
    drafts = dice.random() < 0.4
    requests = dice.choice((None, 1, 48, 256, 4096))
    return {
        "kind": kind,
        "heads": dice.choice((16, 32, 64)),
        "groups": dice.choice((1, 8)) if kind in ("mamba", "beside") else dice.choice((8, 16)),
        "head_dim": dice.choice((64, 128)),
        "state_size": dice.choice((64, 128)),
        "conv_kernel": 4,
        "layers": layers,
        "every": every,
        "tp": tp,
        "dp": dp,
        "pp": dice.choice((1, 1, 2, 4)),
        "rest": dice.choice((3, 20, 61, 110)) * _GIB + dice.randrange(_GIB),
        "cell": dice.choice((6144, 12288, 24576)),
        "context": dice.choice((4096, 32768, 262144)),
        "slots": dice.choice((None, None, None, 100, 3000)),
        "share": dice.choice((None, 0.5, 0.9, 2.0)),
        "radix": dice.random() < 0.7,
        "strategy": dice.choice(("no_buffer", "extra_buffer", "extra_buffer_lazy")),
        "overlap": dice.random() < 0.6,
        "draft_tokens": dice.choice((2, 4, 8)) if drafts else None,
        "requests": requests or 48 if drafts else requests,
        "dtype": dice.choice(("float32", "bfloat16")),
    }


def possible(case: dict[str, Any], release: str) -> bool:
    """The lazy buffer came with 0.5.13, and needs batches that overlap."""
    if case["strategy"] == "extra_buffer_lazy" and (release == "0.5.12" or not case["overlap"]):
        return False
    return case["groups"] == 1 or case["groups"] % (case["tp"] // case["dp"]) == 0


def answer(release: str, case: dict[str, Any], work: Path) -> dict[str, Any]:
    """By the wheel's own functions, taken from its source, on stand-ins for what they look at."""
    functions = _functions(release, work)
    server = functions["held"]["server"] = _server(case, functions["shapes"])
    server.functions |= {name: functions[name] for name in _ASKED}
    try:
        left = int(server.handle_max_mamba_cache(case["rest"] / _GIB) * _GIB)
        requests = server.resolve_max_num_reqs(max(left, 0) // case["cell"])
    except RuntimeError:
        return {"refused": True}
    slots = server.max_mamba_cache_size
    if slots <= 0 or requests <= 0:  # 0.5.12 goes on, to a pool of nothing
        return {"refused": True}
    return {"slots": slots, "left": left, "requests": requests}


class _Everything(SimpleNamespace):
    """Whatever is asked for the settings answers with the settings themselves."""

    functions: dict[str, Any]

    def __getattr__(self, name: str) -> Any:
        if name.lstrip("_") in self.functions:
            function = self.functions[name.lstrip("_")]
            return lambda *arguments: function(self, *arguments)
        if name in ("server_args", "ps", "mamba", "spec_algorithm", "model_config"):
            return self
        raise AttributeError(name)

    def override(self, reason: str, **changes: Any) -> None:
        self.__dict__.update(changes)

    def is_none(self) -> bool:
        return self.speculative_num_draft_tokens is None

    def fused_entry_bytes(self, what: str) -> None:
        return None


class _Flag:
    """A switch, or since 0.5.20 its value: either way of looking at it."""

    def __init__(self, on: bool) -> None:
        self.on = on

    def __call__(self) -> bool:
        return self.on

    def __bool__(self) -> bool:
        return self.on


def _made(case: dict[str, Any], shapes: dict[str, Any]) -> Any:
    heads = {"num_heads": case["heads"], "head_dim": case["head_dim"]}
    ranks = case["tp"] // case["dp"]
    if case["kind"] == "kimi":
        return shapes["KimiLinearStateShape"].create(
            tp_world_size=ranks, conv_kernel_size=case["conv_kernel"], **heads
        )
    if case["kind"] == "lightning":  # srt/configs/bailing_hybrid.py
        nothing = {"intermediate_size": 0, "n_groups": 0, "conv_kernel": 1}
        return shapes["Mamba2StateShape"].create(
            tp_world_size=ranks, state_size=case["head_dim"], **nothing, **heads
        )
    return shapes["Mamba2StateShape"].create(
        tp_world_size=ranks,
        intermediate_size=case["heads"] * case["head_dim"],
        n_groups=case["groups"],
        state_size=case["state_size"],
        conv_kernel=case["conv_kernel"],
        **heads,
    )


def _server(case: dict[str, Any], shapes: dict[str, Any]) -> _Everything:
    own = [i for i in range(case["layers"]) if case["kind"] == "beside" or (i + 1) % case["every"]]
    made = _made(case, shapes)
    conv = sum(a * b for a, b in made.conv)
    heads, values, keys = made.temporal
    width = 4 if case["dtype"] == "float32" else 2
    params = SimpleNamespace(
        layers=own, mamba_cache_per_req=(conv * 2 + heads * values * keys * width) * len(own)
    )
    return _Everything(
        functions={},
        mambaish_config=SimpleNamespace(mamba2_cache_params=params),
        hybrid_gdn_config=None,
        hybrid_kda_config=None,
        max_running_requests=case["requests"],
        max_mamba_cache_size=case["slots"],
        mamba_full_memory_ratio=0.9 if case["share"] is None else case["share"],
        disable_radix_cache=not case["radix"],
        disable_overlap_schedule=not case["overlap"],
        speculative_num_draft_tokens=case["draft_tokens"],
        enable_dp_attention=case["dp"] > 1,
        dp_size=case["dp"],
        attn_dp_size=case["dp"],
        pp_size=case["pp"],
        num_hidden_layers=case["layers"],
        context_len=case["context"],
        enable_linear_replayssm_spec=False,
        extra_mamba_cache_bytes_per_req=0,
        enable_mamba_extra_buffer=_Flag(case["radix"] and case["strategy"] != "no_buffer"),
        enable_mamba_extra_buffer_lazy=_Flag(case["radix"] and case["strategy"] == "extra_buffer_lazy"),
    )


def _functions(release: str, work: Path) -> dict[str, Any]:
    root = wheel_of(release, work).folder / "sglang/srt"
    names = _stand_ins()
    source = next(path for path in (root / file for file in _FILES) if path.is_file())
    body = [
        node
        for node in ast.walk(ast.parse(source.read_text()))
        if isinstance(node, ast.FunctionDef) and node.name.lstrip("_") in _ASKED
    ]
    constants = [
        node
        for node in ast.parse(source.read_text()).body
        if isinstance(node, ast.Assign) and getattr(node.targets[0], "id", "").startswith("MAMBA_CACHE")
    ]
    _run([*constants, *body], names)
    sizing = root / "mem_cache/allocation_sizing.py"
    if sizing.is_file():
        named = ast.parse(sizing.read_text()).body
        _run([node for node in named if getattr(node, "name", "") == "get_mamba_tracking_slots"], names)
    return {name.lstrip("_"): one for name, one in names.items()} | {"shapes": _shapes(root)}


def _stand_ins() -> dict[str, Any]:
    """Getters of settings return the server that is held."""
    held: dict[str, Any] = {}

    def getter() -> Any:
        return held["server"]

    names: dict[str, Any] = dict.fromkeys(
        ("get_schedule", "get_memory", "get_exec", "get_spec", "get_context", "get_parallel"), getter
    )
    names |= {
        "held": held,
        "envs": SimpleNamespace(SGLANG_OPT_MAMBA_SKIP_DECODE_LOCK=SimpleNamespace(get=lambda: False)),
        "logger": SimpleNamespace(warning=lambda *_: None, info=lambda *_: None),
        "get_pp_indices": _pp_indices,
        "kimi_linear_config": lambda _: None,
        "max_speculative_num_draft_tokens": lambda: held["server"].speculative_num_draft_tokens,
        "mamba_extra_buffer_enabled": lambda: held["server"].enable_mamba_extra_buffer(),
        "mamba_extra_buffer_lazy_enabled": lambda: held["server"].enable_mamba_extra_buffer_lazy(),
        "_pd_prefill_skips_mamba_spec_state": lambda: False,
    }
    return names


def _pp_indices(layers: int, rank: int, size: int) -> tuple[int, int]:
    base, extra = divmod(layers, size)
    sizes = [base + (i >= size - extra) for i in range(size)]
    return sum(sizes[:rank]), sum(sizes[: rank + 1])


def _shapes(root: Path) -> dict[str, Any]:
    names: dict[str, Any] = {"divide": lambda a, b: a // b}
    exec("from dataclasses import dataclass\nfrom typing import *", names)
    body = ast.parse((root / "configs/mamba_utils.py").read_text()).body
    wanted = ("extra_groups_for_head_shards", "Mamba2StateShape", "KimiLinearStateShape")
    _run([node for node in body if getattr(node, "name", "") in wanted], names)
    return names


def _run(nodes: list[Any], names: dict[str, Any]) -> None:
    future = ast.parse("from __future__ import annotations").body
    exec(compile(ast.Module([*future, *nodes], []), "wheel", "exec"), names)


def answers(seed: int, count: int, work: Path) -> Iterator[dict[str, Any]]:
    for row in RELEASES:
        dice, found = random.Random(f"{row.version} {seed}"), 0
        while found < count:
            case = draw(dice)
            if possible(case, row.version):
                found += 1
                yield {"release": row.version, **case, "answer": answer(row.version, case, work)}


def read() -> list[dict[str, Any]]:
    with gzip.open(RECORDED, "rt") as file:
        return [json.loads(line) for line in file]


def main() -> None:
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--count", type=int, default=40, help="cases a release")
    parser.add_argument("--work", type=Path, default=WORK, help="where the wheels are kept")
    asked = parser.parse_args()
    lines = "".join(json.dumps(one) + "\n" for one in answers(asked.seed, asked.count, asked.work))
    RECORDED.write_bytes(gzip.compress(lines.encode(), mtime=0))


if __name__ == "__main__":
    main()
