"""Judge the caches of a container's server whose folder is on a volume that this machine does not have."""

from collections.abc import Sequence
from pathlib import Path
from typing import NamedTuple

from sgl_tune.asking.whom import ByServer
from sgl_tune.deployment.launch import launch_of
from sgl_tune.deployment.options import ServerFlags
from sgl_tune.deployment.pasted_command import to_keep
from sgl_tune.recorded.to_paste import to_paste
from sgl_tune.verify.expected import WARM
from sgl_tune.verify.findings import Finding, Verdict, VerifyReport, finding

NOWHERE = "/proc/none"  # no file can be made there


class Away(NamedTuple):
    """Caches that are not on this machine. `folder`: in the container. `verdict`: on each file in it."""

    folder: str
    verdict: Verdict
    said: Finding

    def judged(self, report: VerifyReport) -> VerifyReport:
        """Return the report of an empty folder as the container folder's, if the server looks for files."""
        if not any(file.verdict is Verdict.MISSING for file in report.files):
            return report
        there = [(file, Path(self.folder, file.path.relative_to(NOWHERE))) for file in report.files]
        files = (one._replace(path=path, verdict=self.verdict, findings=()) for one, path in there)
        others = (one for one in report.findings if one.remedy != WARM)
        return VerifyReport(tuple(files), (self.said._replace(where=self.folder), *others))


def away_of(command: Sequence[str], verb: str, by_core: bool) -> Away | None:
    """Return where the caches of the command's container are, or None if they are here."""
    launch = launch_of(command)
    if launch.container is None:
        return None
    named = launch.environment.get("SGLANG_CACHE_DIR")
    folder = named or launch.container.cache_folder
    held = launch.container.elsewhere(folder)
    if held is None:
        return None
    says = f"the cache is {held.where}, "
    if held.starts_empty:
        says += "so each start finds it empty and tunes"
        return Away(folder, Verdict.MISSING, finding("cache-not-kept", says, to_keep(held, folder)))
    words = ["sglang", "serve"] if launch.serve else ["python3", "-m", "sglang.launch_server"]
    words = [*[f"SGLANG_CACHE_DIR={named}"] * bool(named), *words, *launch.arguments]
    inside = to_paste(verb, ByServer(ServerFlags(), tuple(words), core=by_core))
    fix = f"in the container: {inside}"
    return Away(folder, Verdict.UNKNOWN, finding("cache-away", f"{says}which is not here", fix))
