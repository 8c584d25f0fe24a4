"""The build cache: whole entries or none, whatever else happens."""

from __future__ import annotations

import os
from concurrent.futures import ProcessPoolExecutor
from multiprocessing import get_context
from pathlib import Path

import pytest

from cake.cache import Cache, default_directory, key_of

KEY = "ab" + "0" * 62


def test_round_trip(tmp_path: Path) -> None:
    cache = Cache(tmp_path)
    assert cache.get(KEY) is None
    assert cache.put(KEY, {"cubin": b"\x00\xff\n", "log": b""})
    assert Cache(tmp_path).get(KEY) == {"cubin": b"\x00\xff\n", "log": b""}
    assert not list(tmp_path.rglob(".tmp-*"))


@pytest.mark.parametrize("damage", [b"", b"CAKE", b"garbage" * 100])
def test_damage_is_a_miss(tmp_path: Path, damage: bytes) -> None:
    cache = Cache(tmp_path)
    cache.put(KEY, {"cubin": b"x" * 1000})
    cache.path(KEY).write_bytes(damage)
    assert cache.get(KEY) is None
    assert not cache.path(KEY).exists()


def test_every_flipped_or_missing_byte_is_a_miss(tmp_path: Path) -> None:
    cache = Cache(tmp_path)
    cache.put(KEY, {"cubin": b"abc", "log": b"de"})
    whole = cache.path(KEY).read_bytes()
    for i in range(len(whole)):
        cache.path(KEY).write_bytes(whole[:i] + bytes([whole[i] ^ 1]) + whole[i + 1 :])
        assert cache.get(KEY) is None, i
        cache.path(KEY).parent.mkdir(exist_ok=True)
        cache.path(KEY).write_bytes(whole[:i])
        assert cache.get(KEY) is None, i


def _write(directory: str, n: int) -> int:
    cache = Cache(directory)
    wrong = 0
    for i in range(50):
        key = f"{i % 5:02d}" + "f" * 62
        cache.put(key, {"cubin": bytes([i % 5]) * 20000})
        found = cache.get(key)
        wrong += found is None or found["cubin"] != bytes([i % 5]) * 20000
    return wrong


def test_concurrent_writers(tmp_path: Path) -> None:
    with ProcessPoolExecutor(4, mp_context=get_context("spawn")) as pool:
        assert sum(pool.map(_write, [str(tmp_path)] * 4, range(4))) == 0
    assert not list(tmp_path.rglob(".tmp-*"))


def test_least_recently_used_go_first(tmp_path: Path) -> None:
    cache = Cache(tmp_path, limit=3500)
    keys = [f"{i:02d}" + "e" * 62 for i in range(5)]
    for i, key in enumerate(keys):
        cache.put(key, {"cubin": b"x" * 1000})
        os.utime(cache.path(key), (i, i))
    cache.get(keys[0])
    assert cache.prune() == 2
    assert [cache.get(k) is not None for k in keys] == [True, False, False, True, True]


def test_a_directory_that_cannot_be_written(tmp_path: Path) -> None:
    blocker = tmp_path / "file"
    blocker.write_text("")
    cache = Cache(blocker / "cache")
    assert cache.put(KEY, {"cubin": b"x"}) is False
    assert cache.get(KEY) is None


def test_the_key_covers_everything() -> None:
    base = {"arch": "sm_90a", "options": ("a", "b"), "compiler": "1", "headers": {"h": "x"}}
    keys = {
        key_of("s", **base),  # type: ignore[arg-type]
        key_of("t", **base),  # type: ignore[arg-type]
        *(
            key_of("s", **(base | change))  # type: ignore[arg-type]
            for change in (
                {"arch": "sm_80"},
                {"options": ("ab",)},
                {"compiler": "2"},
                {"headers": {"h": "y"}},
                {"headers": {"g": "x"}},
            )
        ),
    }
    assert len(keys) == 7


def test_directory(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setenv("CAKE_CACHE", str(tmp_path / "here"))
    assert default_directory() == tmp_path / "here"
    monkeypatch.delenv("CAKE_CACHE")
    assert default_directory().name == "cake"
