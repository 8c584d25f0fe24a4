"""Processes that run items one by one and may die of them: a hanging kernel goes only with its process.

Some processes stand by with their context open, so that an item that ends its process costs its watchdog's time and no more.
A process that says nothing for too long is killed from outside.
"""

from __future__ import annotations

import multiprocessing
import time
from collections import deque
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field
from multiprocessing.connection import Connection, wait
from typing import Any

SILENCE = 20.0
"""Seconds without a word after which a process is killed; opening a context while others hang takes some."""

READY, LEAVES, ENDED = "ready", "leaves", "ended"
"""A process says ``READY`` when it can take an item, and may say ``LEAVES`` before it ends itself. ``ENDED`` is said for one that
died in the middle of an item, or was killed."""

Event = tuple[int, Any]
"""The number of an item, and what its process said of it."""


@dataclass
class _Worker:
    process: Any
    pipe: Connection
    ready: bool = False
    item: int | None = None
    heard: float = field(default_factory=time.monotonic)


class Pool:
    """``serve(pipe, *arguments)`` says ``READY``, takes an item's number, answers with messages, and so on; it may end its process
    at any time. ``active`` of them have work; ``spare`` more stand by."""

    def __init__(
        self, serve: Callable[..., None], arguments: Sequence[Any], active: int, spare: int, silence: float = SILENCE
    ) -> None:
        self._serve, self._arguments = serve, arguments
        self._active, self._size, self._silence = active, active + spare, silence
        self._context = multiprocessing.get_context("fork")
        self._workers: list[_Worker] = []
        self._gone: list[Any] = []
        self._stillborn = 0
        self.lost = 0

    def run(self, items: Sequence[int], seconds: float) -> Iterator[Event]:
        """What is said about each item; items that have not begun after ``seconds`` are left out. RuntimeError if no process
        gets as far as ``READY``."""
        left = deque(items)
        deadline = time.monotonic() + seconds
        self._fill(len(left))
        try:
            while True:
                self._assign(left if time.monotonic() < deadline else deque())
                if not any(w.item is not None for w in self._workers) and (not left or time.monotonic() >= deadline):
                    return
                yield from self._listen()
                self._fill(len(left))
        finally:
            self._end()

    def _fill(self, left: int) -> None:
        """Start what is missing, as far as there is work for it."""
        busy = sum(w.item is not None for w in self._workers)
        while len(self._workers) < min(self._size, busy + left):
            here, there = self._context.Pipe()
            process = self._context.Process(target=self._serve, args=(there, *self._arguments), daemon=True)
            process.start()
            there.close()
            self._workers.append(_Worker(process, here))

    def _assign(self, left: deque[int]) -> None:
        busy = sum(w.item is not None for w in self._workers)
        for w in self._workers:
            if not left or busy >= self._active:
                return
            if w.ready and w.item is None:
                w.item, w.heard = left.popleft(), time.monotonic()
                w.pipe.send(w.item)
                busy += 1

    def _listen(self) -> Iterator[Event]:
        waiting: dict[Any, _Worker] = {}
        for w in self._workers:
            waiting[w.pipe] = waiting[w.process.sentinel] = w
        heard = {id(waiting[source]): waiting[source] for source in wait(list(waiting), timeout=0.2)}
        for w in list(self._workers):
            if id(w) in heard:
                yield from self._hear(w)
            elif (w.item is not None or not w.ready) and time.monotonic() - w.heard > self._silence:
                w.process.kill()
                yield from self._bury(w)

    def _hear(self, w: _Worker) -> Iterator[Event]:
        try:
            while w.pipe.poll():
                message = w.pipe.recv()
                w.heard = time.monotonic()
                if message == READY:
                    w.ready, w.item = True, None
                    self._stillborn = 0
                elif message == LEAVES:
                    w.item = None
                    yield from self._bury(w)
                    return
                elif w.item is not None:
                    yield w.item, message
        except (EOFError, OSError):
            pass
        if not w.process.is_alive():
            yield from self._bury(w)

    def _bury(self, w: _Worker) -> Iterator[Event]:
        self._workers.remove(w)
        self._gone.append(w.process)
        self.lost += 1
        w.pipe.close()
        self._stillborn += not w.ready
        if self._stillborn > 2 * self._size:
            raise RuntimeError("no worker process starts; the first lines of its error output say why")
        if w.item is not None:
            yield w.item, ENDED

    def _end(self) -> None:
        for w in self._workers:
            w.process.kill()
            w.pipe.close()
        for process in [*(w.process for w in self._workers), *self._gone]:
            process.join(2)
        self._workers.clear()
