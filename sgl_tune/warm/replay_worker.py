"""The process that times a cache's entries again. It loads each file as a server does and looks entries
up."""

from dataclasses import asdict
from typing import TYPE_CHECKING, Any

from sgl_tune.processes.child import Child
from sgl_tune.warm.devices import check_importable
from sgl_tune.warm.events import DONE, PROGRESS, START
from sgl_tune.warm.job import make_device, only_for, read_job
from sgl_tune.warm.worker import failures_told

if TYPE_CHECKING:
    from runtime.autotune.replay import ReplayTuner
    from runtime.devices.base import Device


def main(child: Child) -> None:
    only_for(child.command()["device"])
    job = read_job(child.command()["job"])
    with failures_told(child):
        check_importable()
        from runtime.autotune.replay import install_replay_tuner

        device = make_device(job.device, job.gpus[0] if job.gpus else 0)
        child.say(START)
        tuner = install_replay_tuner(
            device.torch_device, lambda progress: child.say(PROGRESS, op=progress.op, bucket=progress.bucket)
        )
        (cache,) = job.caches
        child.say(DONE, report=_replay(cache, device, tuner))


def _replay(cache: Any, device: "Device", tuner: "ReplayTuner") -> dict[str, Any]:
    from runtime.autotune.installed import tuning_mode
    from runtime.start.rehearsal import Rehearsal

    tuner.clear_cache()
    tuner.replayed.clear()
    loaded = [str(path) for path in cache.files if tuner.load_configs(str(path))]
    rehearsal = Rehearsal(cache.model, cache.parallel, cache.runtime, device)
    with device.side_stream(), tuning_mode(cache.skip_ops):
        rehearsal.forward_all(cache.tuning_rows)
    return {"loaded": loaded, "entries": [asdict(entry) for entry in tuner.replayed]}
