"""A content-addressed cache of compilations, shared by processes.

The key is a hash of everything that decides the result: source, headers, options, compiler build, Cake's version. An
entry is one file that carries its own checksum, written under a temporary name and renamed, so a reader sees a whole
entry or none, and a damaged one is a miss. The cache never fails a build: a directory that cannot be written is a
cache that never hits.
"""

from __future__ import annotations

import contextlib
import hashlib
import json
import os
import sys
import tempfile
from collections.abc import Mapping, Sequence
from pathlib import Path

import cake

MAGIC = b"CAKE-CACHE-1\n"
DEFAULT_LIMIT = 1 << 30
_PRUNE_EVERY = 64
_STALE_TEMPORARY = 3600.0


def default_directory() -> Path:
    """``CAKE_CACHE``, else the platform's directory for caches."""
    if chosen := os.environ.get("CAKE_CACHE"):
        return Path(chosen)
    if sys.platform == "darwin":
        return Path.home() / "Library" / "Caches" / "cake"
    if sys.platform == "win32":
        return Path(os.environ.get("LOCALAPPDATA", Path.home() / "AppData" / "Local")) / "cake" / "cache"
    return Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache") / "cake"


def key_of(
    source: str, *, arch: str, options: Sequence[str], compiler: str, headers: Mapping[str, str] | None = None
) -> str:
    """The content hash of a compilation. Fields are length-prefixed through JSON, so no two inputs run together."""
    record = {
        "arch": arch,
        "cake": cake.__version__,
        "compiler": compiler,
        "headers": sorted((headers or {}).items()),
        "options": list(options),
        "source": source,
    }
    return hashlib.sha256(json.dumps(record, sort_keys=True).encode()).hexdigest()


class Cache:
    """Entries of named byte strings under content keys. ``limit`` bounds the bytes kept; the least recently used go
    first."""

    def __init__(self, directory: Path | str | None = None, *, limit: int | None = None) -> None:
        self.directory = Path(directory) if directory is not None else default_directory()
        self.limit = limit if limit is not None else int(os.environ.get("CAKE_CACHE_BYTES", DEFAULT_LIMIT))
        self._writes = 0

    def path(self, key: str) -> Path:
        """Where the entry of ``key`` lies."""
        return self.directory / "builds" / key[:2] / key

    def get(self, key: str) -> dict[str, bytes] | None:
        """The entry, or None. A damaged entry is removed."""
        path = self.path(key)
        try:
            data = path.read_bytes()
        except OSError:
            return None
        entry = _unpack(data)
        with contextlib.suppress(OSError):
            if entry is None:
                path.unlink()
            else:
                os.utime(path)
        return entry

    def put(self, key: str, entry: Mapping[str, bytes]) -> bool:
        """Store the entry; False where the directory cannot be written. Concurrent writers of a key write the same
        bytes, and the last rename wins."""
        path = self.path(key)
        temporary: str | None = None
        try:
            path.parent.mkdir(parents=True, exist_ok=True)
            handle, temporary = tempfile.mkstemp(prefix=".tmp-", dir=path.parent)
            with os.fdopen(handle, "wb") as f:
                f.write(_pack(entry))
                f.flush()
                os.fsync(f.fileno())
            os.replace(temporary, path)
        except OSError:
            if temporary is not None:
                with contextlib.suppress(OSError):
                    os.unlink(temporary)
            return False
        self._writes += 1
        if self._writes % _PRUNE_EVERY == 1:
            self.prune()
        return True

    def prune(self) -> int:
        """Remove abandoned temporary files, and entries, least recently used first, until the cache is within its
        limit; the number of files removed. Other processes may remove or add files meanwhile."""
        import time

        entries: list[tuple[float, int, Path]] = []
        removed = 0
        for path in (self.directory / "builds").glob("*/*"):
            with contextlib.suppress(OSError):
                stat = path.stat()
                if path.name.startswith(".tmp-"):
                    if time.time() - stat.st_mtime > _STALE_TEMPORARY:
                        path.unlink()
                        removed += 1
                else:
                    entries.append((stat.st_mtime, stat.st_size, path))
        total = sum(size for _, size, _ in entries)
        for _, size, path in sorted(entries, key=lambda e: e[0]):
            if total <= self.limit:
                break
            with contextlib.suppress(OSError):
                path.unlink()
                removed += 1
            total -= size
        return removed


def _pack(entry: Mapping[str, bytes]) -> bytes:
    """Magic, checksum of the rest, index as a JSON line, payloads."""
    index = json.dumps([[name, len(data)] for name, data in entry.items()]).encode() + b"\n"
    body = index + b"".join(entry.values())
    return MAGIC + hashlib.sha256(body).hexdigest().encode() + b"\n" + body


def _unpack(data: bytes) -> dict[str, bytes] | None:
    """The entry of a file's bytes; None if they are damaged."""
    start = len(MAGIC) + 65
    if not data.startswith(MAGIC) or len(data) < start:
        return None
    body = data[start:]
    if hashlib.sha256(body).hexdigest().encode() + b"\n" != data[len(MAGIC) : start]:
        return None
    line, _, payload = body.partition(b"\n")
    out: dict[str, bytes] = {}
    at = 0
    for name, size in json.loads(line):
        out[name] = payload[at : at + size]
        at += size
    return out
