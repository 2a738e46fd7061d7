"""The GPUs that a command counts are those that torch will see."""

import random

import pytest
import torch

from sgl_tune.deployment.versions import Gpu, visible

UUIDS = ("a1", "a2", "b1", "c1")
GPUS = tuple(Gpu(str(number), "sm90", 143771, uuid) for number, uuid in enumerate(UUIDS))
WORDS = ("0", "1", "2", "3", " 1", "-1", "GPU-a1", "GPU-b", "GPU-a", "GPU-z", "MIG-a1", "", "none")


def test_cuda_visible_devices_is_read_as_torch_reads_it(monkeypatch: pytest.MonkeyPatch) -> None:
    chance, seen = random.Random(3), set()
    for _ in range(3000):
        setting = ",".join(chance.sample(WORDS, chance.randint(1, 5)))
        monkeypatch.setenv("CUDA_VISIBLE_DEVICES", setting)
        theirs = torch.cuda._parse_visible_devices()
        if theirs and isinstance(theirs[0], str):
            theirs = torch.cuda._transform_uuid_to_ordinals(theirs, [f"GPU-{uuid}" for uuid in UUIDS])
        found = [int(gpu.name) for gpu in visible(GPUS, setting)]
        assert found == theirs, setting
        seen.add(len(found))
    assert seen == {0, 1, 2, 3, 4}
