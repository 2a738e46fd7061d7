"""Triton's own look-up over groups that are whole, damaged and moved, beside what is said of them.

    python -m tests.stock.triton_groups            # where triton is installed
    python -m tests.stock.triton_groups --record   # what the test holds our reader against

Only `triton.runtime.cache` is asked: `FileCacheManager.get_group` for each kernel. A look-up that raises, or
a description that `CompiledKernel` could not read, ends a start.
"""

from __future__ import annotations

import argparse
import json
import os
import shutil
import tempfile
from collections.abc import Callable
from pathlib import Path

from sgl_tune.cache.folder import open_folder
from sgl_tune.stores.find import Stored
from sgl_tune.stores.item import Setting
from sgl_tune.stores.readers.triton import Triton
from sgl_tune.stores.relocate import relocate
from tests.sgl_tune.stores import make

RECORDED = Path(__file__).with_name("triton_groups.json")
NAME = "kernel"
Change = Callable[[Path], object]


def _group(content: str) -> Change:
    return lambda kernel: (kernel / f"__grp__{NAME}.json").write_text(content)


def _child(**paths: object) -> Change:
    def change(kernel: Path) -> None:
        path = kernel / f"__grp__{NAME}.json"
        told = json.loads(path.read_text())
        told["child_paths"].update({name.replace("_", "."): value for name, value in paths.items()})
        path.write_text(json.dumps(told))

    return change


CHANGES: dict[str, Change] = {
    "whole": lambda kernel: None,
    "no group": lambda kernel: (kernel / f"__grp__{NAME}.json").unlink(),
    "an empty group": _group(""),
    "a group that is cut off": _group('{"child_paths": {"ker'),
    "a group of nothing": _group("{}"),
    "a group that is a list": _group("[]"),
    "a group that is a number": _group("1"),
    "children that are null": _group('{"child_paths": null}'),
    "children that are a list": _group('{"child_paths": ["a"]}'),
    "no children": _group('{"child_paths": {}}'),
    "a path that is null": _child(kernel_cubin=None),
    "a path that is a list": _child(kernel_cubin=[]),
    "a path to nowhere": _child(kernel_cubin="/nowhere/kernel.cubin"),
    "a path with a null byte": _child(kernel_cubin="/a\0b"),
    "a missing file": lambda kernel: (kernel / f"{NAME}.cubin").unlink(),
    "a missing description": lambda kernel: (kernel / f"{NAME}.json").unlink(),
    "an unknown file beside": lambda kernel: (kernel / "other").write_text("x"),
    "all times lost": lambda kernel: [os.utime(path, (9, 9)) for path in kernel.iterdir()],
    "not UTF-8": lambda kernel: (kernel / f"__grp__{NAME}.json").write_bytes(b'{"child_paths": {"\xff": 1}}'),
    "moved": lambda kernel: _move(kernel, mend=False),
    "moved and mended": lambda kernel: _move(kernel, mend=True),
}


def _move(kernel: Path, mend: bool) -> None:
    """The whole store: it goes, and a copy of it comes back from elsewhere."""
    store = kernel.parent
    text = (kernel / f"__grp__{NAME}.json").read_text().replace(str(store), "/where/it/was")
    (kernel / f"__grp__{NAME}.json").write_text(text)
    if mend:
        relocate(Stored("triton", store, store), str(store), False, lambda: None)


def stores(root: Path) -> dict[str, Path]:
    """A store a change, each with one kernel."""
    found = {}
    for number, (name, change) in enumerate(CHANGES.items()):
        store = root / str(number)
        change(make.triton_kernel(store, NAME))
        found[name] = store
    return found


def ours(store: Path) -> str:
    with open_folder(store, store) as folder:
        (item,) = Triton().items(folder, Setting(str(store)))
    kinds = {fault.kind for fault in item.faults}
    return "dies" if "kills" in kinds else "miss" if kinds else "hit"


def theirs(store: Path) -> str:
    from triton.runtime.cache import FileCacheManager

    os.environ["TRITON_CACHE_DIR"] = str(store)
    (kernel,) = store.iterdir()
    try:
        group = FileCacheManager(kernel.name).get_group(f"{NAME}.json")
    except Exception:
        return "dies"
    return "hit" if (group or {}).get(f"{NAME}.json") else "miss"


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawTextHelpFormatter)
    parser.add_argument("--record", action="store_true")
    arguments = parser.parse_args()
    import triton

    folder = Path(tempfile.mkdtemp())
    answers = {name: theirs(store) for name, store in stores(folder).items()}
    apart = {name: ours(folder / str(n)) for n, name in enumerate(CHANGES)}
    shutil.rmtree(folder)
    for name, answer in answers.items():
        print(f"{name:<30}{answer:<6}{apart[name] if apart[name] != answer else ''}")
    if arguments.record:
        RECORDED.write_text(json.dumps({"triton": triton.__version__, "answers": answers}, indent=1) + "\n")
    raise SystemExit(answers != apart)


if __name__ == "__main__":
    main()
