"""Tune a plan that came from a server's own start, on the GPUs of this machine."""

from runtime.ghost.gpus import Gpu
from sgl_tune.cli.out import Output
from sgl_tune.commands.warm_wishes import Wishes
from sgl_tune.config_tuning.plan import ConfigPlan
from sgl_tune.config_tuning.story import LayerResult, tuned_configs
from sgl_tune.errors import UsageError
from sgl_tune.processes.command import Python
from sgl_tune.processes.interruption import ending
from sgl_tune.recorded.plan import RecordedPlan
from sgl_tune.servers.server import Server
from sgl_tune.warm.devices import Devices, choose_devices
from sgl_tune.warm.proof import of_records
from sgl_tune.warm.result import Warmed
from sgl_tune.warm.story import Settings, warm_records


def tuned_both(
    plan: RecordedPlan, configs: ConfigPlan, meant: Gpu, wishes: Wishes, server: Server, out: Output
) -> tuple[Warmed | None, list[LayerResult]]:
    """Tune what is planned of FlashInfer's tactics and of Triton's configurations."""
    devices, warmed = devices_of(meant, wishes), None
    if plan.caches:
        how = of_records(Python(str(server.python)))
        settings = Settings(devices, wishes.timeout, wishes.replace, wishes.is_proven, how)
        with ending(out.error):
            warmed = warm_records(plan, settings, out)
    done = tuned_configs(configs, meant, server.python, wishes.timeout, out) if configs.untuned else []
    return warmed, done


def devices_of(meant: Gpu, wishes: Wishes) -> Devices:
    """Return the GPUs to tune on, which must be of the kind that the plan is for."""
    devices = choose_devices(wishes.device.value, wishes.here)
    if devices.kind != "cuda":
        raise UsageError(
            f"{meant.name} is needed to tune for it, and no GPU driver answers here",
            "run it on the machine that serves; --dry-run shows the plan",
        )
    odd = next((wishes.here[n].name for n in devices.gpus if wishes.here[n].name != meant.name), None)
    if odd is not None:
        raise UsageError(
            f"the record is of {meant.name}, and the GPU here is {odd}",
            "tune on a machine of its kind; leave out --gpu to plan for this one",
        )
    return devices
