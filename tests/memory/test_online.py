"""What a rank holds of plain checkpoints that a server quantizes, as they are made and before they are.

Bytes by SGLang 0.5.23's own classes on a B200, tests/oracle/read_held.py with --quantization and
--disable-radix-cache.
"""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from runtime.forward.comm import VirtualCommunicator
from runtime.models.decoder import Decoder
from sgl_tune.deployment.deployment import Deployment
from sgl_tune.deployment.options import ServerFlags
from sgl_tune.deployment.selection import select_deployments
from sgl_tune.memory.start import starts_of
from tests.memory.checkpoints import checkpoints
from tests.memory.rank_bytes import META, values_made
from tests.memory.served import held
from tests.oracle.published import published

_QWEN, _FLASH = "Qwen/Qwen3-30B-A3B", "Qwen/Qwen3.8-Flash-Next"
_KIMI = "moonshotai/Kimi-Linear-48B-A3B-Instruct"
_GLM, _HY4 = "a/glm-5.3-flash-as-its-classes-have-it", "a/hy4-preview-as-its-classes-have-it"
_HELD = (
    (_QWEN, "fp8", 1, 1, 61064318976, 0),
    (_QWEN, "fp8", 4, 4, 15285270528, 0),
    (_QWEN, "mxfp8", 1, 1, 61970214912, 0),
    (_QWEN, "mxfp8", 2, 1, 30997901312, 0),
    (_QWEN, "nvfp4_online", 4, 4, 4866693120, 0),
    (_FLASH, "nvfp4_online", 1, 1, 77843715200, 897862112),
    (_FLASH, "modelopt_fp4", 4, 4, 20611143200, 227408696),
    (_KIMI, "fp8", 1, 1, 98247574528, 0),
    (_KIMI, "mxfp8", 4, 1, 24984765568, 0),
    (_KIMI, "modelopt_fp4", 2, 1, 16772052736, 0),
    (_GLM, "nvfp4_online", 2, 1, 94908293112, 598517760),
    (_GLM, "mxfp8", 4, 1, 159560362360, 334141440),
    (_GLM, "w8a8_fp8", 2, 1, 161794044408, 598517760),
    (_HY4, "modelopt_fp4", 4, 1, 9903431924, 0),
    (_HY4, "mxfp8", 4, 1, 39307135220, 0),
    (_HY4, "w8a8_fp8", 2, 1, 31321640244, 0),
    (_FLASH, "mxfp8", 2, 1, 152923947072, 450893168),
    (_QWEN, "w8a8_fp8", 4, 4, 8059514880, 0),
    ("a/step3-from-memory", "fp8", 4, 1, 159856866816, 3034064768),
    ("a/seed-oss-36b-by-its-card", "mxfp8", 2, 1, 36151764992, 0),
    ("a/dots.llm1-142b-from-memory", "fp8", 2, 1, 142806992640, 0),
    ("BAAI/bge-m3", "fp8", 2, 1, 575309828, 0),
    ("microsoft/phi-2", "fp8", 2, 1, 2780016640, 0),
    ("LGAI-EXAONE/EXAONE-3.0-7.8B-Instruct", "mxfp8", 2, 1, 7818715136, 0),
    ("PaddlePaddle/PaddleOCR-VL", "fp8", 2, 1, 466692096, 542112368),
    ("xai-org/grok-2", "fp8", 8, 1, 67398293504, 0),
    ("xai-org/grok-2", "w8a8_fp8", 8, 1, 41653649408, 0),
    ("xai-org/grok-2", "modelopt_fp4", 8, 1, 31964819456, 0),
    ("a/nanbeige-4.2-3b-from-memory", "mxfp8", 2, 1, 4169938944, 0),
    ("a/spark-2.5-of-the-sizes-of-its-class", "mxfp8", 2, 1, 1984598016, 0),
    ("tiiuae/Falcon-H1-34B-Instruct", "fp8", 2, 1, 34980232192, 0),
    ("tiiuae/Falcon-H1-34B-Instruct", "mxfp8", 1, 1, 69958942720, 0),
)

# Values of a rank's matrices that SGLang's own class gives a method, as large as plain ones until it runs.
_MADE = (
    ("stabilityai/stablelm-2-1_6b", "mxfp8", 2, 415236096),
    ("allenai/OLMo-7B-0424-hf", "fp8", 2, 2164260864),
    ("tiiuae/Falcon-H1-34B-Instruct", "mxfp8", 2, 13023313920),
    ("a/gigachat-3.5-432b-from-memory", "fp8", 4, 2986278912),
    ("state-spaces/mamba-2.8b-hf", "fp8", 2, 1315962880),
    ("tiiuae/falcon-mamba-7b", "mxfp8", 2, 3363831808),
    ("mistralai/Mamba-Codestral-7B-v0.1", "fp8", 8, 876609536),
    (_KIMI, "fp8", 2, 630915072),
    ("xai-org/grok-2", "fp8", 8, 7650410496),
    ("a/mixtral-8x7b-of-whole-experts", "fp8", 2, 23219666944),
)


@pytest.mark.parametrize(("name", "method", "tp", "ep", "layers", "tower"), _HELD)
def test_it_is_what_sglangs_class_makes(
    name: str, method: str, tp: int, ep: int, layers: int, tower: int, tmp_path: Path
) -> None:
    assert held(_deployment(tmp_path, name, method, tp, ep)) == [layers, tower]


@pytest.mark.parametrize(("name", "method", "tp", "values"), _MADE)
def test_its_class_quantizes_the_same_matrices(
    name: str, method: str, tp: int, values: int, tmp_path: Path
) -> None:
    found = _deployment(tmp_path, name, method, tp)
    (start,) = starts_of(found, str(tp - 1))
    comm = VirtualCommunicator(start.parallel, tp - 1)
    assert (
        values_made(Decoder(start.model, start.runtime, comm, META, range(start.model.num_layers))) == values
    )


def _deployment(folder: Path, name: str, method: str, tp: int, ep: int = 1) -> Deployment:
    configs = {one.name: one.config for one in checkpoints()} | {
        one.name: one.config for one in published().values()
    }
    (folder / "config.json").write_text(json.dumps(configs[name]))
    command = f"sglang serve --model-path {folder} --trust-remote-code --disable-radix-cache".split()
    command += ["--quantization", method, "--tp", str(tp), "--ep", str(ep)]
    flags = ServerFlags(gpu="B200", sglang_version="0.5.23")
    return select_deployments(flags, command, environ={})[0]
