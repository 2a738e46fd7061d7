"""Random tiny models of every family: bytes of a rank by SGLang's own class beside ours, where neither ends.

python -m tests.oracle.held_random --family exaone4 --count 10 --seed 5 [--release 0.5.23] [--gpu B200]
    [--place 4/2/2] [--stage 1/3]
python -m tests.oracle.held_random --quantized [mixed | mxfp8]
python -m tests.oracle.held_random --made fp8 --gpu B200
"""

from __future__ import annotations

import argparse
import json
import random
import tempfile
from collections import Counter
from collections.abc import Iterator
from math import prod
from pathlib import Path
from typing import Any
from unittest.mock import patch

import torch

from runtime.forward.comm import Communicator, VirtualCommunicator
from runtime.models.decoder import Decoder
from runtime.models.draft import DraftModel
from runtime.models.encoder import EncoderWeights
from runtime.server.adapter_pool import follows_adapters, pool_of
from runtime.server.config import ModelConfig, RuntimeConfig
from runtime.server.errors import ConfigError
from runtime.server.parallel import stage_layers
from runtime.start.weights_beside import idle_weights
from sgl_tune.deployment.deployment import Deployment
from sgl_tune.deployment.options import ServerFlags
from sgl_tune.deployment.selection import select_deployments
from sgl_tune.errors import UsageError
from sgl_tune.keys.starts import never_starts
from tests.memory.rank_bytes import values_made
from tests.oracle.held import sizes_of
from tests.oracle.inside import run_inside
from tests.oracle.random_sections import section_of
from tests.oracle.wheels import WORK, wheel_of
from tests.runtime.classless import CLASSLESS
from tests.runtime.families import TINY, make_reference
from tests.runtime.families.reference import served_json
from tests.runtime.random_models import draw

HF = dict[str, Any]
_META = torch.device("meta")
# A class of a checkpoint's own, and what such classes have where a file tells nothing.
_OWN: HF = {
    "use_qkv_bias": False,
    "auto_map": {"AutoConfig": "configuration_own.OwnConfig"},
    **{"embedding_dropout": 0.0, "moe_layer_freq": 1},
}
_USUAL = 0.7  # of quantized ones, whose formats are what is drawn
_UNKNOWN = "Transformers does not recognize"


def main() -> None:
    options = argparse.ArgumentParser(
        prog="python -m tests.oracle.held_random", description=(__doc__ or "")[:60]
    )
    options.add_argument("--family", action="append")
    options.add_argument("--count", type=int, default=10)
    options.add_argument("--seed", type=int, default=0)
    options.add_argument("--release", default="0.5.23")
    options.add_argument("--gpu", default="H200")
    options.add_argument("--place", default="1", help="tp, or tp/ep/dp: its last rank")
    options.add_argument("--stage", default="0/1", help="which one, and of how many")
    options.add_argument("--server", default="", help="what each server is told beside")
    options.add_argument(
        "--quantized", nargs="?", const="", help="each in a format of its own, or in ones of ModelOpt's"
    )
    options.add_argument("--made", default="", help="values of what a server makes so of plain files")
    options.add_argument("--drafts", action="store_true", help="the layer that drafts, in place of the model")
    options.add_argument("--adapters", default="", help="the pool of these: room for how many, rank, modules")
    options.add_argument("--work", type=Path, default=WORK, help="where the wheels are kept")
    asked = options.parse_args()
    drawn = [
        (family, told)
        for family in asked.family or TINY
        for told in _files(family, random.Random(f"{family} {asked.seed}"), asked)
    ]
    families, files = [family for family, _ in drawn], [told for _, told in drawn]
    ours = [_ours(told, asked) for told in files]
    answers = _asked(files, ours, asked, [*range(len(files))])
    foreign = [at for at, said in answers.items() if _UNKNOWN in str(said)]
    foreign += [at for at, said in enumerate(ours) if isinstance(said, str) and families[at] in CLASSLESS]
    for at in foreign:
        files[at] = {**_OWN, **files[at]}
        ours[at] = _ours(files[at], asked)
    answers |= _asked(files, ours, asked, foreign)
    said = [
        (families[at], _verdict(ours[at], answers.get(at), asked.quantized is not None))
        for at in range(len(files))
    ]
    for family in dict.fromkeys(families):
        print(family, dict(Counter(one.partition(":")[0] for own, one in said if own == family)), flush=True)
        for line, times in Counter(one for one in said if one[0] == family).items():
            print(f"  {times} x {line[1][:200]}")
            if not line[1].startswith(("equal", "refused")):
                told = files[said.index(line)]
                print(f"    {json.dumps(told.get('quantization_config', {}))} {json.dumps(told)}")


def _files(family: str, dice: random.Random, asked: argparse.Namespace) -> Iterator[HF]:
    quantized = asked.quantized is not None
    for _ in range(asked.count):
        try:
            drawn = {} if quantized and dice.random() < _USUAL else draw(family, dice)
            model = make_reference(family, **drawn)
            told = served_json(model)
        except Exception:  # what transformers refuses
            continue
        how = asked.release, asked.quantized or None
        section = section_of([*model.state_dict()], dice, *how) if quantized else None
        yield _in_bfloat16(told) | ({"quantization_config": section} if section else {})


def _in_bfloat16(told: HF) -> HF:
    """And each of its sections that says what it is in."""
    sections = {name: part for name, part in told.items() if isinstance(part, dict) and "dtype" in part}
    return {**told, **{name: _in_bfloat16(part) for name, part in sections.items()}, "dtype": "bfloat16"}


def _ours(told: HF, asked: argparse.Namespace) -> list[int] | str:
    """Bytes of the text and of its encoder, or why there are none."""
    tp, ep, dp = sizes_of(asked.place)
    stage = _stage(asked)[0]
    with tempfile.TemporaryDirectory() as folder:
        Path(folder, "config.json").write_text(json.dumps(told))
        command = ["python", "-m", "sglang.launch_server", "--model-path", folder, "--tp", str(tp)]
        command += ["--ep", str(ep)] if ep > 1 else []
        command += ["--dp", str(dp), "--enable-dp-attention"] if dp > 1 else []
        command += _pipeline(asked)
        command += ["--trust-remote-code"] if "auto_map" in told else []
        command += _told(asked)
        flags = ServerFlags(gpu=asked.gpu, sglang_version=asked.release)
        try:
            found = select_deployments(flags, command=command)[0]
            model, why = found.shape.model, found.shape.unknown or never_starts(found)
        except (ConfigError, UsageError) as error:
            return str(error)
    uncomputed = () if model is None or "quantization_config" in told else model.uncomputed
    if model is None or why or model.obstacles or uncomputed:
        return str(why or (model and (*model.obstacles, *uncomputed)[0]))
    comm = VirtualCommunicator(found.parallel, stage * tp + tp - 1)
    try:
        if asked.adapters:
            return [_of_adapters(model, found, tp - 1), 0]
        if asked.drafts:
            return [_of_draft(model, found.runtime, comm), 0]
        layers = stage_layers(model.num_layers, found.parallel, stage)
        rank = Decoder(model, found.runtime, comm, _META, layers)
        if asked.made:
            return [values_made(rank), 0]
    except ConfigError as error:
        return str(error)
    seen = found.model.encoder.weights if found.model.encoder else ()
    tower = EncoderWeights(seen, comm, torch.bfloat16, _META)
    held = ([*rank.parameters(), *idle_weights(rank)], tower.parameters())
    return [sum(one.nbytes for one in part) for part in held]


def _pipeline(asked: argparse.Namespace) -> list[str]:
    stages = _stage(asked)[1]
    return ["--pp-size", str(stages)] if stages > 1 else []


def _stage(asked: argparse.Namespace) -> tuple[int, int]:
    at, of = map(int, asked.stage.split("/"))
    return at, of


def _of_draft(model: ModelConfig, runtime: RuntimeConfig, comm: Communicator) -> int:
    """As it is made: of what it becomes once its weights are there, classes alone say nothing."""
    with patch.object(Decoder, "_finalize"):
        return sum(one.nbytes for one in DraftModel(model, runtime, comm, _META).parameters())


def _of_adapters(model: ModelConfig, found: Deployment, rank: int) -> int:
    pool = pool_of(found.runtime.adapters, model, found.parallel, rank)
    if pool is None or not follows_adapters(model, found.server):
        raise ConfigError("adapters that are not followed")
    return sum(2 * prod(shape) for _, shape in pool.buffers())


def _adapters(asked: argparse.Namespace) -> dict[str, Any] | None:
    if not asked.adapters:
        return None
    slots, rank, modules = asked.adapters.split()
    modules = "all" if modules == "all" else modules.split(",")
    return {"slots": int(slots), "rank": int(rank), "modules": modules}


def _told(asked: argparse.Namespace) -> list[str]:
    """What each server is told beside, in its own words."""
    drafts = ["--speculative-algorithm", "EAGLE"] if asked.drafts else []
    made = ["--quantization", asked.made] if asked.made else []
    return [*asked.server.split(), *made, *drafts, *_told_adapters(_adapters(asked))]


def _told_adapters(told: dict[str, Any] | None) -> list[str]:
    if told is None:
        return []
    modules = ["all"] if told["modules"] == "all" else told["modules"]
    sizes = ["--max-loras-per-batch", str(told["slots"]), "--max-lora-rank", str(told["rank"])]
    return ["--enable-lora", *sizes, "--lora-target-modules", *modules]


def _asked(
    files: list[HF], ours: list[list[int] | str], asked: argparse.Namespace, these: list[int]
) -> dict[int, Any]:
    """SGLang's answers, where we have one."""
    wanted = [at for at in these if not isinstance(ours[at], str)]
    if not wanted:
        return {}
    tp, ep, dp = sizes_of(asked.place)
    place: dict[str, Any] = {"tp": tp, "ep": ep, "dp": dp, "rank": tp - 1, "fused": "/" in asked.place}
    stage, stages = _stage(asked)
    argv = [*_told(asked), *_pipeline(asked)]
    place |= {"stage": [stages, stage], "argv": argv}
    place |= {"quantized": bool(asked.made) or asked.quantized is not None, "made": bool(asked.made)}
    place |= {"draft": asked.drafts, "adapters": _adapters(asked)}
    lines = [json.dumps({"config": files[at], **place}) for at in wanted]
    wheel, work = wheel_of(asked.release, asked.work.absolute()), asked.work.absolute()
    return dict(
        zip(wanted, run_inside("read_held", wheel, asked.gpu, work, lines, 1800, "may-end"), strict=True)
    )


def _verdict(ours: list[int] | str, theirs: Any, quantized: bool) -> str:
    """What of an encoder is quantized is not told: see EncoderWeights."""
    if isinstance(ours, str):
        return f"refused: {ours}"
    if isinstance(theirs, str):
        return f"SGLang ends: {theirs}"
    more = [own - other for own, other in zip(ours, theirs, strict=True)]
    if more[0] or (more[1] and not quantized):
        return f"different: {more[0]} bytes more than SGLang's, and {more[1]} of its encoder"
    return "equal"


if __name__ == "__main__":
    main()
