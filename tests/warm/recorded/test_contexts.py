"""Contexts are recorded, and opened again, without their files; only public functions are called again."""

import os
import subprocess
import sys
from pathlib import Path

from sgl_tune.processes.command import ROOT

OPENED = """
import sys
from sgl_tune.warm.job import only_for
only_for("cpu")
from runtime.flashinfer.inside import calls, contexts
from runtime.ghost.inside import hooks
hooks.install()
import flashinfer
from flashinfer.autotuner import AutoTuner
from runtime.flashinfer.replay import opened
from runtime.record.calls import Context
tuner, root = AutoTuner.get(), sys.argv[1]
for name, files in {"autotune": {"cache": root + "/a.json"}, "autotune_v2": {"cache_root": root}}.items():
    for more in ({}, files):
        context = Context(name, {"skip_ops": {"set": ["x"]}})
        context.arguments.update(more)  # as if a record could say it
        with opened((context,)):
            assert tuner.is_tuning_mode and "x" in tuner._effective_skip_ops
            tuner._dirty = True
        assert tuner._managed_cache is None, name
with flashinfer.autotune_v2(cache_root=root, persistent_cache=False, round_up=True):
    assert contexts.stack() == [{"name": "autotune_v2", "arguments": {"round_up": True}}]
from runtime.flashinfer.arguments import CannotMake, public_function
assert public_function("fused_moe.core:cutlass_fused_moe").__name__ == "cutlass_fused_moe"
core = "fused_moe.core:get_cutlass_fused_moe_module"
for name, why in ((core, "is no public function"), ("nowhere:f", "cannot be imported here"),
                  ("api_logging:replay_from_dump", "is no public function")):
    try: raise AssertionError(public_function(name))
    except CannotMake as error: assert why in str(error)
"""


def test_a_context_is_replayed_without_its_file_and_only_public_functions_are(tmp_path: Path) -> None:
    environment = {**os.environ, "FLASHINFER_AUTOTUNE_CACHE_DIR": str(tmp_path)}
    command = [sys.executable, "-c", OPENED, str(tmp_path)]
    done = subprocess.run(command, cwd=ROOT, env=environment, capture_output=True, text=True, timeout=120)
    assert done.returncode == 0, done.stderr
    assert not list(tmp_path.iterdir())
