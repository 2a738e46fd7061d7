"""Where bundles go, by the URL's scheme; and what is said where its library is not here."""

import json
import subprocess
import sys
from importlib.util import find_spec
from pathlib import Path

import pytest

from sgl_tune.ship.remote.described import described
from sgl_tune.ship.remote.remotes import PLACES, Machine
from tests.sgl_tune.running import environment, run_here
from tests.sgl_tune.ship.bundles import make_bundle
from tests.sgl_tune.stores import make


@pytest.mark.parametrize("scheme", [name for name, place in PLACES.items() if not find_spec(place.library)])
def test_what_is_not_installed_is_named_with_how(scheme: str, tmp_path: Path) -> None:
    bundle = make_bundle(tmp_path / "b.tar.gz")
    for words in (("push", bundle, f"{scheme}://x/y:1"), ("pull", f"{scheme}://x/y:1")):
        ran = run_here(*words)
        assert ran.code == 2 and ran.err.splitlines() == [
            f"error: {scheme}:// needs {PLACES[scheme].library}",
            f"  fix: {PLACES[scheme].install}",
        ]


def test_no_place_is_imported_before_it_is_named(tmp_path: Path) -> None:
    script = (
        "import sys; sys.argv = ['sgl-tune', 'pull', 'nowhere://x']; from sgl_tune.cli.app import main;"
        "code = main(); print(code, {'oras', 'requests', 'fsspec', 's3fs', 'nacl'} & sys.modules.keys())"
    )
    done = subprocess.run(
        [sys.executable, "-c", script], capture_output=True, text=True, env=environment(), timeout=60
    )
    assert done.stdout == "2 set()\n", done.stderr


def test_an_image_of_kernels_is_labelled_for_others_who_list_such_images(tmp_path: Path) -> None:
    make.whole_root(tmp_path / "root")
    bundle = tmp_path / "b.tar.gz"
    assert run_here("pack", tmp_path / "root", "-o", bundle, "--at", "/sgl-tune").code == 0
    labels = described(bundle, Machine("NVIDIA H200", "sm90", "linux/amd64"), lambda *_: None).labels
    assert json.loads(labels["cache.triton.image/summary"]) == {
        "targets": [{"backend": "cuda", "arch": "90", "warp_size": 32}]
    }
    assert int(labels["cache.triton.image/entry-count"]) == int(labels["sgl-tune.items.triton"]) > 0
    assert labels["io.kserve.km/cache-root-env"] == "SGLANG_CACHE_DIR=/sgl-tune"
