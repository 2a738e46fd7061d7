"""A store for a single rank of a larger world: it returns this rank's values in place of those of peers."""

from typing import Any


def make(world: int) -> Any:
    """Return a torch.distributed.Store in which all keys exist and all barriers are full."""
    import torch.distributed as dist

    class LoneStore(dist.Store):
        def __init__(self) -> None:
            super().__init__()
            self._values: dict[str, bytes] = {}
            self._counts: dict[str, int] = {}

        def set(self, key: str, value: Any) -> None:
            self._values[key] = value if isinstance(value, bytes) else str(value).encode()

        def get(self, key: str) -> bytes:
            """Return the value. If only a peer writes it, return this rank's under the same prefix."""
            if key not in self._values:
                prefix = key.rpartition("/")[0]
                mine = [value for name, value in self._values.items() if name.startswith(prefix)]
                self._values[key] = mine[-1] if mine else b"0"
            return self._values[key]

        def add(self, key: str, amount: int) -> int:
            """Return the count as if every rank had added the same amount."""
            self._counts[key] = self._counts.get(key, 0) + amount * world
            return self._counts[key]

        def wait(self, *_: Any) -> None: ...

        def check(self, keys: list[str]) -> bool:
            return True

        def compare_set(self, key: str, expected: Any, desired: Any) -> bytes:
            self.set(key, desired)
            return self._values[key]

        def delete_key(self, key: str) -> bool:
            return self._values.pop(key, None) is not None

        def num_keys(self) -> int:
            return len(self._values)

        def set_timeout(self, timeout: Any) -> None: ...

        def multi_set(self, keys: list[str], values: list[Any]) -> None:
            for key, value in zip(keys, values, strict=True):
                self.set(key, value)

        def multi_get(self, keys: list[str]) -> list[bytes]:
            return [self.get(key) for key in keys]

        def has_extended_api(self) -> bool:
            return True

    return LoneStore()
