"""Server commands that somebody could paste to make us run code, write files, or reach a host."""

import json
import os
import shlex
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

RAN = "foreign code ran"
_LLAMA: Mapping[str, Any] = {
    "architectures": ["LlamaForCausalLM"], "model_type": "llama", "hidden_size": 256,
    "intermediate_size": 512, "num_hidden_layers": 2, "num_attention_heads": 4, "num_key_value_heads": 2,
    "vocab_size": 1024, "max_position_embeddings": 2048, "torch_dtype": "bfloat16", "rms_norm_eps": 1e-5,
}  # fmt: skip


_QUICK = ("--disable-cuda-graph", "--chunked-prefill-size", "64", "--sampling-backend", "pytorch")


@dataclass(frozen=True)
class Yard:
    """A place to try one command: nothing in `root` may change, except the server's own work."""

    root: Path
    port: int

    @property
    def model(self) -> Path:
        return self.root / "model"

    @property
    def outside(self) -> Path:
        return self.root / "outside"

    def foreign(self, name: str, extra: str = "") -> Path:
        """Return a Python file that reports when it runs."""
        path = self.root / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(
            f"print({RAN!r}, flush=True)\nopen({str(self.outside / 'ran')!r}, 'w').close()\n{extra}"
        )
        return path

    def config(self, file: str = "config.json", **changes: Any) -> None:
        values = {**_LLAMA, **changes} if file == "config.json" else changes
        (self.model / file).write_text(json.dumps(values))


def _nothing(yard: Yard) -> None: ...


@dataclass(frozen=True)
class Hostile:
    """A start that goes ahead without what was asked for.

    {root}, {model}, {outside} and {port} in words and variables stand for those of the yard.
    """

    words: str = ""
    variables: Mapping[str, str] = field(default_factory=dict)
    prepare: Callable[[Yard], None] = _nothing
    trust: bool = False  # our own --trust-remote-code
    ready: bool = True  # SGLang becomes ready; else it does not know the model, the file or the flag

    def argv(self, yard: Yard) -> list[str]:
        words = ("--model-path", "{model}", *_QUICK, *shlex.split(self.words))
        return [_filled(word, yard) for word in words]

    def environment(self, yard: Yard) -> dict[str, str]:
        return {name: _filled(value, yard) for name, value in self.variables.items()}


def _filled(word: str, yard: Yard) -> str:
    names = {"root": yard.root, "model": yard.model, "outside": yard.outside, "port": yard.port}
    for name, value in names.items():
        word = word.replace("{" + name + "}", str(value))
    return word


def _own_code(yard: Yard) -> None:
    yard.foreign("model/configuration_own.py", "class OwnConfig: ...\n")
    yard.foreign("model/modeling_own.py", "class OwnModel: ...\n")
    yard.config(auto_map={"AutoConfig": "configuration_own.OwnConfig", "AutoModel": "modeling_own.OwnModel"})


def _own_unknown_code(yard: Yard) -> None:
    _own_code(yard)
    mapped = {"AutoConfig": "configuration_own.OwnConfig"}
    yard.config(model_type="own_model", architectures=["OwnModel"], auto_map=mapped)


def _contained_code(yard: Yard) -> None:
    """The user allows the model's code to run: it runs, and reaches nothing."""
    (yard.model / "configuration_own.py").write_text(
        f"""
import os, socket, subprocess, sys, threading
from transformers import LlamaConfig

def tried(what):
    try: what(); print("reached", flush=True)
    except Exception as error: print("held", type(error).__name__, flush=True)

tried(lambda: open({str(yard.outside / "written")!r}, "w"))
tried(lambda: open("/dev/nvidia0", "rb"))
tried(lambda: socket.create_connection(("127.0.0.1", {yard.port}), timeout=2))
tried(lambda: socket.create_connection(("192.0.2.1", 80), timeout=2))
tried(lambda: os.kill({{parent}}, 0))
subprocess.run(["sh", "-c", "echo x > {yard.outside}/shell"])
subprocess.Popen(["sleep", "600"], start_new_session=True)
for _ in range(4): os.fork() or os._exit(__import__("time").sleep(600))

class OwnConfig(LlamaConfig):
    model_type = "own_model"
""".replace("{parent}", str(os.getpid()))
    )
    mapped = {"AutoConfig": "configuration_own.OwnConfig"}
    yard.config(model_type="own_model", auto_map=mapped)


def _own_tokenizer(yard: Yard) -> None:
    for kind in ("tokenization", "processing", "image_processing"):
        yard.foreign(f"model/{kind}_own.py")
    yard.config("tokenizer_config.json", auto_map={"AutoTokenizer": ["tokenization_own.Own", None]})
    yard.config("processor_config.json", auto_map={"AutoProcessor": "processing_own.Own"})
    yard.config("preprocessor_config.json", auto_map={"AutoImageProcessor": "image_processing_own.Own"})


def _importable(yard: Yard) -> None:
    yard.foreign("foreign/evil.py", "def load(*a, **k): ...\nclass Own: ...\n")


def _customized(yard: Yard) -> None:
    for name in ("sitecustomize.py", "usercustomize.py", "torch.py", "sglang.py", "json.py"):
        yard.foreign(name)
        yard.foreign(f"model/{name}")


def _path_files(yard: Yard) -> None:
    line = f"import sys; print({RAN!r}); open({str(yard.outside / 'ran')!r}, 'w')\n"
    homes = (f"home/.local/lib/python3.{minor}/site-packages" for minor in (11, 12))
    for place in ("model", ".", *homes):
        (yard.root / place).mkdir(parents=True, exist_ok=True)
        (yard.root / place / ".hidden.pth").write_text(line)
        (yard.root / place / "evil.pth").write_text(line)


def _linked(yard: Yard) -> None:
    (yard.model / "generation_config.json").symlink_to(yard.outside / "kept")
    (yard.model / "hf_quant_config.json").symlink_to("../outside/made")
    (yard.model / "presharded").symlink_to(yard.outside)


def _pickled(yard: Yard) -> None:
    payload = f"cos\nsystem\n(S'touch {yard.outside}/ran'\ntR.".encode()
    for name in ("model/model.bin", "model/pytorch_model.bin", "map.pt"):
        (yard.root / name).write_bytes(payload)


_PYTHON = {"PYTHONPATH": "{root}/foreign", "PYTHONSTARTUP": "{root}/foreign/evil.py", "PYTHONINSPECT": "1"}
_WEB = "http://127.0.0.1:{port}"
_FILES = (
    "--crash-dump-folder {outside} --export-metrics-to-file --export-metrics-to-file-dir {outside}"
    " --log-requests-target {outside} --file-storage-path {outside}/storage --download-dir {outside}"
    " --delete-ckpt-after-loading"
)
COMMANDS: Mapping[str, Hostile] = {
    "python variables": Hostile(variables={**_PYTHON, "PYTHONHOME": "{root}"}, prepare=_importable),
    "preloaded library": Hostile(variables={"LD_PRELOAD": "{root}/evil.so", "LD_LIBRARY_PATH": "{root}"}),
    "remote code": Hostile("--trust-remote-code", prepare=_own_code),
    "remote code of an unknown model": Hostile("--trust-remote-code", prepare=_own_unknown_code, ready=False),
    "remote code that only we allow": Hostile(prepare=_own_unknown_code, trust=True, ready=False),
    "remote code that is allowed": Hostile(
        "--trust-remote-code", prepare=_contained_code, trust=True, ready=False
    ),
    "plugin": Hostile(
        "", {**_PYTHON, "SGLANG_PLUGINS": "evil", "SGLANG_EXTERNAL_MODEL_PACKAGE": "evil"}, _importable
    ),
    "model loader": Hostile(
        """--load-format remote --model-loader-extra-config '{"url": "http://127.0.0.1:{port}"}'"""
    ),
    "links out of the model": Hostile(prepare=_linked),
    "site customized in the folders": Hostile(prepare=_customized),
    "path files in the folders": Hostile(prepare=_path_files, variables={"HOME": "{root}/home"}),
    "tokenizer with code": Hostile("--trust-remote-code", prepare=_own_tokenizer),
    "override that names nonsense": Hostile(
        "--json-model-override-args"
        """ '{"architectures": ["../../outside/Own"], "quant_method": "/evil"}'""",
        ready=False,
    ),
    "pickles": Hostile(
        "--load-format pt --init-expert-location {root}/map.pt", prepare=_pickled, ready=False
    ),
    "proxies": Hostile(
        variables=dict.fromkeys(("HTTPS_PROXY", "HTTP_PROXY", "ALL_PROXY", "HF_ENDPOINT", "HF_TOKEN"), _WEB)
    ),
    "cubins from elsewhere": Hostile(
        "--attention-backend flashinfer",
        {"FLASHINFER_CUBINS_REPOSITORY": _WEB, "FLASHINFER_CUBIN_DIR": "{outside}",
         "FLASHINFER_NVCC": "/bin/false"},
    ),
    "ports": Hostile(
        "--host 0.0.0.0 --port {port} --grpc-port 1 --enable-metrics --kv-events-config {}"
    ),
    "meeting elsewhere": Hostile("--dist-init-addr 192.0.2.1:{port}"),
    "files of all kinds": Hostile(
        _FILES,
        dict.fromkeys(("SGLANG_CACHE_DIR", "TRITON_CACHE_DIR", "TORCHINDUCTOR_CACHE_DIR"), "{outside}"),
    ),
    "flag of a later release": Hostile(
        "--load-plugin-from {root}/foreign/evil.py", prepare=_importable, ready=False
    ),
}  # fmt: skip
