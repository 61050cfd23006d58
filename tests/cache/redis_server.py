"""As much of a Redis server as the cache and its tests ask, for machines that have none.

Enters: a port of the loopback device, as an argument. Leaves: a process that answers there, in
version 3 of Redis's protocol, until it is killed. Values are kept in memory, one lock for all.

    → *2\\r\\n$3\\r\\nGET\\r\\n$4\\r\\nname\\r\\n        ← $5\\r\\nvalue\\r\\n
"""

from __future__ import annotations

import socketserver
import sys
import threading
import time
from collections.abc import Callable
from typing import Any

Answer = bytes | int | str | list[Any] | dict[str, Any] | None | Exception


class Store:
    """The values, and the commands on them."""

    def __init__(self) -> None:
        self.values: dict[bytes, bytes] = {}
        self.paused_until = 0.0

    def hello(self, *words: bytes) -> Answer:
        return {"server": "redis", "version": "7.0.0", "proto": 3, "mode": "standalone"}

    def ping(self) -> Answer:
        return "PONG"

    def select(self, database: bytes) -> Answer:
        return "OK" if database == b"0" else ValueError("DB index is out of range")

    def set(self, name: bytes, value: bytes) -> Answer:
        self.values[name] = value
        return "OK"

    def get(self, name: bytes) -> Answer:
        return self.values.get(name)

    def getrange(self, name: bytes, first: bytes, last: bytes) -> Answer:
        """Both ends belong to the range, as Redis has it."""
        return self.values.get(name, b"")[int(first) : int(last) + 1]

    def scan(self, cursor: bytes, *options: bytes) -> Answer:
        """All at once: the next cursor is the end."""
        return [b"0", list(self.values)]

    def client(self, what: bytes, *words: bytes) -> Answer:
        if what.upper() == b"PAUSE":
            self.paused_until = time.monotonic() + int(words[0]) / 1000
        return "OK"

    def commands(self) -> dict[bytes, Callable[..., Answer]]:
        known = (
            *(self.hello, self.ping, self.select, self.client),
            *(self.set, self.get, self.getrange, self.scan),
        )
        return {one.__name__.upper().encode(): one for one in known}


def encoded(answer: Answer) -> bytes:
    match answer:
        case None:
            return b"_\r\n"
        case int():
            return b":%d\r\n" % answer
        case str():
            return b"+%s\r\n" % answer.encode()
        case bytes():
            return b"$%d\r\n%s\r\n" % (len(answer), answer)
        case list():
            return b"*%d\r\n%s" % (len(answer), b"".join(map(encoded, answer)))
        case dict():
            pairs = (part for pair in answer.items() for part in pair)
            return b"%%%d\r\n%s" % (len(answer), b"".join(map(encoded, pairs)))
        case _:
            return b"-ERR %s\r\n" % str(answer).encode()


class Connection(socketserver.StreamRequestHandler):
    """One client: a command, its answer, and so on."""

    store = Store()
    lock = threading.Lock()

    def handle(self) -> None:
        while head := self.rfile.readline():
            words = [self._word() for _ in range(int(head[1:]))]
            time.sleep(max(0.0, self.store.paused_until - time.monotonic()))
            self.wfile.write(encoded(self._answer(*words)))

    def _word(self) -> bytes:
        size = int(self.rfile.readline()[1:])
        return self.rfile.read(size + 2)[:-2]

    def _answer(self, name: bytes, *words: bytes) -> Answer:
        command = self.store.commands().get(name.upper())
        if command is None:
            return ValueError(f"unknown command {name!r}")
        with self.lock:
            return command(*words)


class Server(socketserver.ThreadingTCPServer):
    """A thread for each client; none is waited for."""

    allow_reuse_address = True
    daemon_threads = True


if __name__ == "__main__":
    Server(("127.0.0.1", int(sys.argv[1])), Connection).serve_forever()
