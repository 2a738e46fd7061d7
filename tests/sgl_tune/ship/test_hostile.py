"""Every hostile archive is refused in a line, and nothing of it is written anywhere."""

import random
import re
import resource
import time
from pathlib import Path

import pytest

from sgl_tune.ship.archive import Archive, _Stream
from sgl_tune.ship.manifest import BadBundle
from tests.sgl_tune.running import run_here
from tests.sgl_tune.ship import cases_manifest, cases_members, cases_stream
from tests.sgl_tune.ship.forge import GOOD, MANIFEST, PLAIN

CASES = {**cases_stream.CASES, **cases_members.CASES, **cases_manifest.CASES}

_MOST_SECONDS = 5.0
_MOST_GROWTH = 150 << 10  # kB


def test_the_bundle_that_they_are_made_of_is_good(tmp_path: Path) -> None:
    (tmp_path / "good.tar.gz").write_bytes(GOOD)
    assert run_here("unpack", tmp_path / "good.tar.gz", "--cache-dir", tmp_path / "new").code == 0


def test_no_byte_of_a_tar_may_be_another() -> None:
    """The manifest's own words may differ; kinds, links, modes, owners, times, checksums, contents and
    padding may not."""
    draw = random.Random(1)
    manifest = range(512, 512 + len(MANIFEST.to_bytes()))
    for at in draw.sample([at for at in range(len(PLAIN)) if at not in manifest], 1000):
        bit = 1 << draw.randrange(8)
        changed = PLAIN[:at] + bytes([PLAIN[at] ^ bit]) + PLAIN[at + 1 :]
        with pytest.raises(BadBundle):
            for _, content in Archive(_Stream(iter([changed])), len(GOOD), lambda: None).each():
                for _ in content:
                    pass


@pytest.mark.parametrize("name", CASES)
def test_a_hostile_archive_is_refused(name: str, tmp_path: Path) -> None:
    if name.startswith("zstd"):
        pytest.importorskip("zstandard")
    make, reason = CASES[name]
    bundle = tmp_path / "bundle.tar.gz"
    bundle.write_bytes(make())
    (tmp_path / "work").mkdir()
    before, begun = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss, time.process_time()
    ran = run_here("unpack", bundle, "--cache-dir", tmp_path / "work/cache")
    assert time.process_time() - begun < _MOST_SECONDS
    assert resource.getrusage(resource.RUSAGE_SELF).ru_maxrss - before < _MOST_GROWTH
    assert ran.code == 1 and ran.out == ""
    error, *rest = ran.err.splitlines()
    assert error.startswith(f"error: {bundle}: ") and re.search(reason, error), error
    assert len(rest) <= 1 and len(error) < 1200
    assert sorted(path.name for path in tmp_path.rglob("*")) == ["bundle.tar.gz", "work"]
