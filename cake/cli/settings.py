"""``NAME=VALUE`` words: dims, scalars and constants are told apart by what the kernel declares."""

from __future__ import annotations

import difflib
import re
from collections.abc import Iterable, Mapping

from cake.cli.outcome import UsageError, error

Value = bool | int | float
Settings = dict[str, Value]

_NAME = re.compile(r"[A-Za-z_][A-Za-z0-9_]*")
_INTEGER = re.compile(r"[+-]?[0-9]{1,40}|[+-]?0[xX][0-9a-fA-F]{1,32}")
I32_MAX = 2**31 - 1


def parse_settings(words: Iterable[str]) -> Settings:
    """The settings of a command line, by name; UsageError for a word that is none."""
    settings: Settings = {}
    for word in words:
        name, equals, text = word.partition("=")
        if not equals or not text:
            what = "has no value" if _NAME.fullmatch(name) else "is no setting"
            raise UsageError(f"`{word}` {what}", f"write {name or 'NAME'}=VALUE")
        if not name:
            raise UsageError(f"`{word}` sets nothing", "write NAME=VALUE")
        if not _NAME.fullmatch(name):
            raise UsageError(f"`{name}` is no name", "write NAME=VALUE")
        if name in settings:
            raise UsageError(f"`{name}` is set twice")
        settings[name] = _value(name, text)
    return settings


def _value(name: str, text: str) -> Value:
    if text in ("True", "true", "False", "false"):
        return text in ("True", "true")
    plain = text.replace("_", "")
    if _INTEGER.fullmatch(plain):
        return int(plain, 0) if "x" in plain.lower() else int(plain)
    try:
        return float(plain)
    except ValueError:
        raise UsageError(f"`{name}={text}`: {text} is no number", "values are numbers, True and False") from None


def take(settings: Mapping[str, Value], names: Iterable[str]) -> Settings:
    """The settings of these names."""
    chosen = set(names)
    return {n: v for n, v in settings.items() if n in chosen}


def unknown(names: Iterable[str], kernel: str, kinds: Mapping[str, Iterable[str]]) -> None:
    """Refuse names that are of no kind (T001), with the nearest name that is."""
    known = {n: kind for kind, members in kinds.items() for n in members}
    for name in names:
        if name in known:
            continue
        near = difflib.get_close_matches(name, known, n=1)
        near = near or [n for n in known if n.lower() == name.lower()]
        facts = [f"{kind}: {', '.join(members)}" for kind, members in kinds.items() if members]
        help = f"did you mean `{near[0]}` (a {known[near[0]].removesuffix('s')})?" if near else None
        raise error("T001", f"kernel `{kernel}` has nothing called `{name}` to set", help, *facts)


def check_dims(dims: Mapping[str, Value]) -> dict[str, int]:
    """Dims are integers that a kernel can count with (R104)."""
    out: dict[str, int] = {}
    for name, value in dims.items():
        if isinstance(value, bool) or not isinstance(value, int):
            raise error("R104", f"dim `{name}` = {value}: a dim is an integer", f"write {name}=128")
        if not 0 <= value <= I32_MAX:
            raise error("R104", f"dim `{name}` = {value}: a dim is between 0 and {I32_MAX}")
        out[name] = value
    return out
