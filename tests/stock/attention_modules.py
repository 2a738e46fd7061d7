"""Each pinned FlashInfer's own wrappers' loaders, asked which module of attention they load.

python -m tests.stock.attention_modules --work DIR --record

FLASHINFER_DISABLE_JIT has FlashInfer refuse a module that is not there, and name it.
"""

from __future__ import annotations

import argparse
import json
import os
import subprocess
import sys
from pathlib import Path

from runtime.server.attention_modules import TRTLLM, decode_module, latent_module, prefill_module
from runtime.server.flashinfer import flashinfer_of
from runtime.server.module import Module
from tests.stock.flashinfer_versions import PINNED, Environment

RECORDED = Path(__file__).with_name("attention_modules.json")
_TYPES = (("bfloat16", "bfloat16"), ("float16", "float16"), ("bfloat16", "float8_e4m3fn"))
_SIZES = ((64, 64), (128, 128), (192, 128), (256, 256))
ASK = """
import ast, inspect, json, sys
import torch
from flashinfer import decode, prefill
from flashinfer.mla import _core as latent

def named(load, *arguments):
    if load is written:
        return written()
    arguments = [getattr(torch, one) if str(one) in TYPES else one for one in arguments]
    try:
        load(*arguments)
    except Exception as error:
        spec = getattr(error, "spec", None)
        return spec.name if spec is not None else repr(error)
    return "loaded"

def written():  # it is made of what is downloaded first
    from flashinfer.jit.attention import gen_trtllm_gen_fmha_module
    calls = [one for one in ast.walk(ast.parse(inspect.getsource(gen_trtllm_gen_fmha_module)))
             if isinstance(one, ast.Call) and ast.unparse(one.func) == "gen_jit_spec"]
    return calls[0].args[0].value

TYPES = ("bfloat16", "float16", "float8_e4m3fn", "int32")
cutlass = lambda *arguments: prefill.gen_fmha_cutlass_sm100a_module(*arguments).build_and_load()
LOADERS = {
    "attention:gen_batch_mla_module": latent.get_batch_mla_module,
    "attention:gen_batch_decode_module": decode.get_batch_decode_module,
    "attention:gen_fmha_cutlass_sm100a_module": cutlass,
    "attention:gen_trtllm_gen_fmha_module": written,
}
asked = json.loads(sys.argv[1])
print(json.dumps([named(LOADERS.get(maker, prefill.get_batch_prefill_module), *a) for maker, a in asked]))
"""


def modules_told(version: str) -> list[Module]:
    """Of each kind, as ours names them for this FlashInfer."""
    row = flashinfer_of(version)
    found = [latent_module(row, by, dtype) for by in ("fa2", "fa3") for dtype in ("bfloat16", "float16")]
    found += [TRTLLM, prefill_module(row, "cutlass", "bfloat16", "bfloat16", (192, 128))]
    for dtype, kept in _TYPES:
        for sizes in _SIZES:
            found += [prefill_module(row, "fa2", dtype, kept, sizes, windowed) for windowed in (False, True)]
            if dtype == kept:
                found += [
                    prefill_module(row, "fa3", dtype, kept, sizes),
                    decode_module(dtype, kept, sizes[1]),
                ]
    return list(dict.fromkeys(found))


def names_loaded(python: str, modules: list[Module], folder: Path) -> list[str]:
    settings = {
        "FLASHINFER_WORKSPACE_BASE": str(folder),
        "FLASHINFER_CUDA_ARCH_LIST": "9.0a 10.0a",
        "FLASHINFER_DISABLE_JIT": "1",
        "PYTHONSAFEPATH": "1",
    }
    asked = json.dumps([(one.maker, one.arguments) for one in modules])
    command = [python, "-c", ASK, asked]
    environment = {**os.environ, **settings}
    done = subprocess.run(command, capture_output=True, text=True, env=environment, timeout=600)
    if done.returncode:
        raise SystemExit(f"{python}: {done.stderr[-2000:]}")
    return list(json.loads(done.stdout.splitlines()[-1]))


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawTextHelpFormatter)
    parser.add_argument("--work", type=Path, required=True)
    parser.add_argument("--record", action="store_true")
    arguments = parser.parse_args()
    answers = {}
    for version in PINNED:
        environment = Environment(version, arguments.work.resolve() / version)
        environment.make()
        modules = modules_told(version)
        answers[version] = names_loaded(str(environment.python), modules, arguments.work / f"base-{version}")
        apart = [
            (one.name, name) for one, name in zip(modules, answers[version], strict=True) if one.name != name
        ]
        print(version, len(modules), apart[:3] or "all as ours", flush=True)
    if arguments.record:
        RECORDED.write_text(json.dumps(answers, indent=1) + "\n")


if __name__ == "__main__":
    sys.exit(main())
