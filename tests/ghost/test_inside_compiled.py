"""torch.compile on the ghost looks through our wrapper into the compiled function."""

from collections.abc import Iterator
from pathlib import Path
from types import SimpleNamespace

import pytest

from runtime.ghost.inside import compiled

torch = pytest.importorskip("torch")


@pytest.fixture(autouse=True)
def rules(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> Iterator[None]:
    """Apply the ghost's rules for what torch looks into, and restore them after the test."""
    from torch._dynamo import trace_rules

    monkeypatch.setenv("TORCHINDUCTOR_CACHE_DIR", str(tmp_path))
    monkeypatch.setattr(trace_rules, "SKIP_DIRS", list(trace_rules.SKIP_DIRS))
    compiled._dynamo(trace_rules)
    yield
    monkeypatch.undo()
    trace_rules._recompile_re()


def test_a_compiled_function_is_looked_into_by_what_is_compiled_around_it() -> None:
    ghost = SimpleNamespace(compile=torch.compile, nn=torch.nn)
    compiled._torch(ghost)

    @ghost.compile(backend="eager")
    def inner(x: object) -> object:
        return x + 1  # type: ignore[operator]

    outer = torch.compile(lambda x: inner(x) * 2, backend="eager", fullgraph=True)
    assert outer(torch.ones(1)).item() == 4
