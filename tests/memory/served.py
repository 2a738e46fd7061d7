"""What a rank of a published checkpoint's server holds of weights here: the text's bytes, and the towers'."""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path
from tempfile import TemporaryDirectory

import torch

from runtime.forward.comm import VirtualCommunicator
from runtime.models.encoder import EncoderWeights
from sgl_tune.deployment.deployment import Deployment
from sgl_tune.deployment.options import ServerFlags
from sgl_tune.deployment.resolve import resolve_deployment
from sgl_tune.keys.starts import never_starts
from sgl_tune.memory.start import starts_of
from tests.memory.checkpoints import DATA, checkpoints, params
from tests.memory.rank_bytes import META, bytes_by_kind, bytes_of
from tests.oracle.held import sizes_of
from tests.oracle.published import Published

RECORDED = DATA / "sglang_servers.json"
RELEASE = "0.5.23"
ARCHES = {"H200": "sm90", "B200": "sm100"}
_EXPERTS = ("num_experts", "n_routed_experts", "num_local_experts")


def cases() -> Iterator[tuple[Published, str, str]]:
    """A checkpoint, a GPU, and a place: tp, or tp/ep/dp."""
    for one in checkpoints():
        if "EAGLE" not in one.name:
            place = "8/8/8" if any(field in json.dumps(one.config) for field in _EXPERTS) else "8"
            yield from ((one, gpu, place) for gpu in ARCHES)


def deployed(one: Published, gpu: str, place: str) -> Deployment:
    tp, ep, dp = sizes_of(place)
    with TemporaryDirectory(prefix=f"{one.name.rpartition('/')[2]}-") as folder:
        (Path(folder) / "config.json").write_text(json.dumps(one.config))
        if one.name in params():
            (Path(folder) / "params.json").write_text(json.dumps(params()[one.name]))
        if one.modelopt_file:
            (Path(folder) / "hf_quant_config.json").write_text(json.dumps(one.modelopt_file))
        place_told = {"tp": tp, "ep": ep, "dp": dp, "enable_dp_attention": dp > 1}
        told = ServerFlags(model_path=folder, arch=ARCHES[gpu], sglang_version=RELEASE, **place_told)
        return resolve_deployment(told, environ={})


def is_served(deployment: Deployment) -> bool:
    return deployment.shape.model is not None and never_starts(deployment) is None


def held(deployment: Deployment) -> list[int]:
    """On the last rank."""
    last = deployment.parallel.tp - 1
    (start,) = starts_of(deployment, str(last))
    comm = VirtualCommunicator(start.parallel, last)
    model = start.model
    tower = EncoderWeights(model.encoder.weights if model.encoder else (), comm, torch.bfloat16, META)
    return [bytes_by_kind(model, start.runtime, comm), bytes_of(tower)]
