"""One loop for all pipes and sockets: it calls a function for each that is ready."""

import selectors
from collections.abc import Callable
from typing import Any

CHUNK = 1 << 20


class Pump:
    def __init__(self) -> None:
        self._selector = selectors.DefaultSelector()

    def add(self, place: Any, ready: Callable[[], None], writing: bool = False) -> None:
        event = selectors.EVENT_WRITE if writing else selectors.EVENT_READ
        self._selector.register(place, event, ready)

    def change(self, place: Any, ready: Callable[[], None], reading: bool, writing: bool) -> None:
        event = selectors.EVENT_READ * reading | selectors.EVENT_WRITE * writing
        self._selector.modify(place, event, ready)

    def remove(self, place: Any) -> None:
        if self._selector.get_map() and place in self._selector.get_map():
            self._selector.unregister(place)

    def turn(self, seconds: float) -> None:
        for key, _ in self._selector.select(seconds):
            key.data()

    def close(self) -> None:
        self._selector.close()
