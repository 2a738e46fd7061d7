"""What lies outside of a cache and is nobody's business: that it was not even read, its access times show."""

import os
from pathlib import Path

SECRET = "a private key, 4711"


class Outside:
    """A folder with a private file, and with a cache's files, the better to be taken for one."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        folder.mkdir(parents=True)
        self.private = folder / "private"
        for path in (self.private, folder / "rank_tp0_pp0_dp0.json", folder / "sgl-tune.json"):
            path.write_text(SECRET)
        self._before = self._look()

    def is_untouched(self) -> bool:
        seen = {path: self._facts(path) for path in self._before if path.exists()}
        return seen == self._before and self._look().keys() == self._before.keys()

    def _look(self) -> dict[Path, tuple[int, ...]]:
        paths = [self.folder, *self.folder.rglob("*")]
        for path in paths:
            os.utime(path, (1_000_000_000, 1_000_000_001))
        return {path: self._facts(path) for path in paths}

    @staticmethod
    def _facts(path: Path) -> tuple[int, ...]:
        status = path.lstat()
        return status.st_ino, status.st_size, status.st_mode, status.st_atime_ns, status.st_mtime_ns
