"""Objects frozen for good are not collected nor visited; later ones are collected as usual."""

import subprocess
import sys

import pytest

_SCRIPT = """
import gc, weakref
from runtime.ghost.inside import garbage

class Thing: ...

def cycle():
    thing = Thing()
    thing.itself = thing
    return weakref.ref(thing)

imported = [Thing() for _ in range(1000)]
old, before = cycle(), len(gc.get_objects())
assert garbage.freeze_for_good()
assert gc.get_freeze_count() == 0
for _ in range(3):
    new = cycle()
    gc.freeze()
    gc.unfreeze()
    gc.collect()
    assert new() is None, "a later cycle is garbage"
assert old() is not None, "an earlier one is not looked at"
assert len(gc.get_objects()) < before / 2
assert not any(one is imported for one in gc.get_objects())
del imported[:]  # objects of the list that was set aside go as their last user does
assert garbage.freeze_for_good()
gc.unfreeze()
gc.collect()
print("good")
"""


@pytest.mark.skipif(sys.version_info >= (3, 14), reason="CPython holds frozen objects in another way")
def test_what_is_frozen_for_good_is_not_unfrozen() -> None:
    done = subprocess.run([sys.executable, "-c", _SCRIPT], capture_output=True, text=True, timeout=60)
    assert done.stdout == "good\n", done.stderr
