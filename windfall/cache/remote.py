"""A store that several machines share, behind the one on disk: Redis, or a folder by its URL.

Enters: keys and bytes; a URL and a key that those who share it know. Leaves: the bytes of a key, or
None. Invariant: a value is taken only if its MAC, made with the shared key over its name and its
content, fits: what anybody else has put there is a miss, and nothing of it is read any further. A
store that fails, or that takes longer than `remote_cache_seconds`, is left alone for the rest of
the process, with one warning; the program compiles for itself.

    windfall-1/<of the shared key, this windfall, torch and processor>/<key>
        magic, MAC, length of `about`, about, content
"""

from __future__ import annotations

import functools
import hashlib
import hmac
import importlib
import logging
import os
import posixpath
import threading
from collections.abc import Callable
from typing import Any, Protocol, TypeVar
from urllib.parse import urlsplit, urlunsplit

from windfall import locks
from windfall.cache.key import surroundings
from windfall.errors import WindfallError
from windfall.options import Options

MAGIC = b"windfall remote 1\n"
MAC_BYTES = 32
FOLDER = "windfall-1"
REDIS_SCHEMES = ("redis", "rediss", "unix")

Answered = TypeVar("Answered")
_logger = logging.getLogger("windfall")


class RemoteError(WindfallError):
    """The remote store cannot be used; the text says why."""


class Transport(Protocol):
    """How bytes get to a server and back; whatever it raises ends its use."""

    def get(self, name: str, most: int) -> bytes | None:
        """At most so many bytes of a value; None: there is none."""

    def put(self, name: str, data: bytes) -> None:
        """Put a value, whole or not at all."""


class RedisTransport:
    """Values of a Redis server; needs the package `redis` (`pip install windfall[redis]`)."""

    def __init__(self, url: str, seconds: float) -> None:
        redis = _imported("redis", "pip install windfall[redis]")
        no_retry = importlib.import_module("redis.retry").Retry(
            importlib.import_module("redis.backoff").NoBackoff(), 0
        )
        self._client = redis.Redis.from_url(
            url, socket_timeout=seconds, socket_connect_timeout=seconds, retry=no_retry
        )

    def get(self, name: str, most: int) -> bytes | None:
        """See `Transport`: a range, so that no huge value is fetched."""
        found: bytes = self._client.getrange(name, 0, most - 1)
        return found or None  # a missing value is an empty one

    def put(self, name: str, data: bytes) -> None:
        """See `Transport`."""
        self._client.set(name, data)


class FileTransport:
    """Files behind a URL that fsspec knows: `file://`, `memory://`, `s3://` with its package."""

    def __init__(self, url: str, seconds: float) -> None:
        core = _imported("fsspec.core", "pip install fsspec")
        self._files, self._root = core.url_to_fs(url)
        local = importlib.import_module("fsspec.implementations.local")
        self._local = isinstance(self._files, local.LocalFileSystem)

    def get(self, name: str, most: int) -> bytes | None:
        """See `Transport`."""
        try:
            found: bytes = self._files.cat_file(self._path(name), start=0, end=most)
        except FileNotFoundError:
            return None
        return found

    def put(self, name: str, data: bytes) -> None:
        """See `Transport`: stores of objects do it whole; a file gets its name once it is."""
        path = self._path(name)
        if not self._local:
            self._files.pipe_file(path, data)
            return
        part = f"{path}.part-{os.urandom(8).hex()}"
        os.makedirs(os.path.dirname(path), exist_ok=True)
        try:
            self._files.pipe_file(part, data)
            os.replace(part, path)
        except BaseException:
            if os.path.exists(part):
                os.unlink(part)
            raise

    def _path(self, name: str) -> str:
        return posixpath.join(self._root, name)


def _imported(name: str, advice: str) -> Any:
    try:
        return importlib.import_module(name)
    except ImportError as error:
        raise RemoteError(f"{error}; {advice}") from error


class RemoteStore:
    """Values that others may have made. It never raises: see the module."""

    def __init__(
        self, url: str, secret: str, *, seconds: float, limit: int, writable: bool
    ) -> None:
        self._secret = secret.encode()
        self._seconds = seconds
        self._most = limit // 4  # as the store on disk keeps them
        self._writable = writable
        self._url = url
        self._transports: dict[int, Transport] = {}  # of each process: connections end at a fork
        self._lock = locks.lock()
        self._poison_told = False
        self._off = ""  # why

    @property
    def off(self) -> str:
        """Why it is left alone; "": it is used."""
        return self._off

    def get(self, key: str) -> tuple[str, bytes] | None:
        """What a value is about, and its content."""
        name = self.name(key)
        # One byte more than can be right: then it is known to be too long.
        most = self._most + len(MAGIC) + MAC_BYTES + 4 + (1 << 12)
        value = self._asked(lambda transport: transport.get(name, most + 1))
        if value is None:
            return None
        try:
            return self._opened(name, value, most)
        except RemoteError as reason:
            self._tell_poison(f"{name} {reason}")
            return None

    def put(self, key: str, data: bytes, about: str) -> bool:
        """Let others find it; whether the store has it."""
        if not self._writable or len(data) > self._most:
            return False
        name, told = self.name(key), about.encode()[: 1 << 12]
        content = len(told).to_bytes(4, "little") + told + data
        value = MAGIC + self._mac(name, content) + content

        def send(transport: Transport) -> bool:
            transport.put(name, value)
            return True

        return self._asked(send) is True

    def name(self, key: str) -> str:
        """Under which name a key's value stands: other versions and other shared keys have names
        of their own."""
        return f"{FOLDER}/{self._room}/{key}"

    def probe(self) -> str:
        """Why the store cannot be used; "": it answers. For the doctor."""
        self._asked(lambda transport: transport.get(self.name("probe"), 1))
        return self._off

    # ---------------------------------------------------------------------------------- values

    @functools.cached_property
    def _room(self) -> str:
        return hmac.new(self._secret, surroundings().encode(), hashlib.sha256).hexdigest()[:32]

    def _mac(self, name: str, content: bytes) -> bytes:
        made = hmac.new(self._secret, MAGIC, hashlib.sha256)
        made.update(len(name).to_bytes(4, "little") + name.encode())
        made.update(content)
        return made.digest()

    def _opened(self, name: str, value: bytes, most: int) -> tuple[str, bytes]:
        start = len(MAGIC)
        if not isinstance(value, bytes) or len(value) > most or not value.startswith(MAGIC):
            raise RemoteError("is no value of windfall's, or of another version")
        mac, content = value[start : start + MAC_BYTES], value[start + MAC_BYTES :]
        if not hmac.compare_digest(mac, self._mac(name, content)):
            raise RemoteError("was not made with the key of WINDFALL_REMOTE_CACHE_KEY")
        behind = 4 + int.from_bytes(content[:4], "little")
        return content[4:behind].decode(errors="replace"), content[behind:]

    # ----------------------------------------------------------------------------------- asking

    def _asked(self, ask: Callable[[Transport], Answered]) -> Answered | None:
        if self._off:
            return None
        try:
            transport = self._transport()  # imports take the time that they take
            return _within(self._seconds, lambda: ask(transport))
        except Exception as error:  # of any client library
            self._switch_off(f"{type(error).__name__}: {error}")
            return None

    def _transport(self) -> Transport:
        with self._lock:
            found = self._transports.get(os.getpid())
            if found is None:
                redis = urlsplit(self._url).scheme in REDIS_SCHEMES
                found = (RedisTransport if redis else FileTransport)(self._url, self._seconds)
                self._transports[os.getpid()] = found
        return found

    def _switch_off(self, reason: str) -> None:
        with self._lock:
            first, self._off = not self._off, self._off or reason
        if first:
            _logger.warning(
                "the remote cache %s is not used any more: %s", without_password(self._url), reason
            )

    def _tell_poison(self, reason: str) -> None:
        with self._lock:
            first, self._poison_told = not self._poison_told, True
        if first:
            _logger.warning(
                "a value of the remote cache %s was refused (others are not told of): %s",
                without_password(self._url),
                reason,
            )


def _within(seconds: float, work: Callable[[], Answered]) -> Answered:
    """What `work` answers; `RemoteError` if it takes longer. It is then left to itself: client
    libraries have time-outs for a packet, not for an answer, and some have none."""
    answers: list[Answered] = []
    errors: list[Exception] = []
    done = threading.Event()

    def run() -> None:
        try:
            answers.append(work())
        except Exception as error:
            errors.append(error)
        finally:
            done.set()

    threading.Thread(target=run, name="windfall-remote-cache", daemon=True).start()
    if not done.wait(seconds):
        raise RemoteError(f"no answer in {seconds} s (remote_cache_seconds)")
    if errors:
        raise errors[0]
    return answers[0]


def without_password(url: str) -> str:
    """A URL that may be shown."""
    parts = urlsplit(url)
    _, at, host = parts.netloc.rpartition("@")
    shown = parts._replace(netloc=f"…{at}{host}" if at else host, query="")
    return urlunsplit(shown)


@functools.cache
def _opened(url: str, secret: str, seconds: float, limit: int, writable: bool) -> RemoteStore:
    return RemoteStore(url, secret, seconds=seconds, limit=limit, writable=writable)


def remote_for(options: Options) -> RemoteStore | None:
    """The remote store that these options choose: one object for each."""
    if not options.remote_cache or options.cache == "off":
        return None
    writable = options.remote_cache_write and options.cache == "on"
    return _opened(
        options.remote_cache,
        options.remote_cache_key,
        float(options.remote_cache_seconds),
        options.cache_bytes,
        writable,
    )
