"""late_modules.py: DeepGEMM is not there while SGLang is imported, and empty afterwards."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

CODE = """
import sys, types, importlib.util
sys.path.insert(0, {folder!r})
import late_modules
late_modules.install()
print(importlib.util.find_spec("deep_gemm"))
scheduler = types.ModuleType("scheduler")
sys.modules["sglang.srt.managers.scheduler"] = scheduler
print(importlib.util.find_spec("deep_gemm"))
scheduler.run_scheduler_process = None
import deep_gemm
print(deep_gemm.__name__, hasattr(deep_gemm, "fp8_gemm_nt"), importlib.util.find_spec("deep_gemm_2"))
"""


def test_a_late_module_is_empty_and_comes_after_sglang_is_imported() -> None:
    folder = str(Path(__file__).parent)
    code = CODE.format(folder=folder)
    done = subprocess.run([sys.executable, "-I", "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout.split("\n") == ["None", "None", "deep_gemm False None", ""]
