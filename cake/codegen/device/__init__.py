"""The device functions that generated code may use. Only those used, and what they need, go into a unit."""

from __future__ import annotations

import re
from functools import cache
from importlib.resources import files

FILES = ("types", "numbers", "memory", "sync", "matrix", "atomics", "select", "chaos")


@cache
def _items() -> list[tuple[str, set[str], set[str]]]:
    """(text, names it defines, words it uses) of every blank-line separated item, in order."""
    out = []
    for name in FILES:
        text = (files(__package__) / f"{name}.cuh").read_text()
        for item in re.split(r"\n\s*\n", text.strip()):
            code = "\n".join(line for line in item.splitlines() if not line.lstrip().startswith("//"))
            if not code.strip():
                continue
            defined = set(re.findall(r"(?:struct|using)\s+(?:alignas\(\d+\)\s+)?(\w+)", code))
            defined |= set(re.findall(r"^(?:template.*\n)?__device__[^(\n]*?(\w+)\(", code, re.MULTILINE))
            defined |= set(re.findall(r"^#define\s+(\w+)", code, re.MULTILINE))
            out.append((item, defined, set(re.findall(r"\w+", code))))
    return out


def device_names() -> set[str]:
    """Every name that the device functions define."""
    return set().union(*(defined for _, defined, _ in _items()))


def device_code(text: str) -> str:
    """The items that ``text`` needs, directly or through others, in file order."""
    words = set(re.findall(r"\w+", text))
    chosen: set[int] = set()
    while True:
        more = {n for n, (_, defined, _) in enumerate(_items()) if n not in chosen and defined & words}
        if not more:
            return "\n\n".join(item for n, (item, _, _) in enumerate(_items()) if n in chosen)
        chosen |= more
        for n in more:
            words |= _items()[n][2]
