"""Just enough of the ELF of a cubin to read a kernel's resources and parameters: no tool, no driver, no GPU.

Attributes lie in ``.nv.info`` (of all functions) and ``.nv.info.<kernel>``: a format byte, an attribute byte, then a
16-bit value or the size of a payload. Only attributes that tools print and that have been stable over architectures
are read.
"""

from __future__ import annotations

import struct
from collections.abc import Iterator
from dataclasses import dataclass

_REGCOUNT, _FRAME_SIZE, _KPARAM_INFO, _MAX_THREADS, _MAXREG, _NUM_BARRIERS = 0x2F, 0x11, 0x17, 0x05, 0x1B, 0x4C
_SVAL = 4


@dataclass(frozen=True)
class Section:
    """One section: its bytes (empty for NOBITS), its size and its ``sh_info``."""

    name: str
    data: bytes
    size: int
    info: int


@dataclass(frozen=True)
class KernelInfo:
    """What the cubin says of one kernel. ``parameters`` are sizes in bytes, in order; ``frame`` is local memory a
    thread; ``static_shared`` counts the bytes that the architecture reserves, too."""

    name: str
    registers: int
    frame: int
    static_shared: int
    code_bytes: int
    max_threads: int | None
    max_registers: int | None
    parameters: tuple[int, ...]


def sections(cubin: bytes) -> list[Section]:
    """The sections of an ELF64 little-endian file; ValueError if it is not one."""
    if cubin[:6] != b"\x7fELF\x02\x01":
        raise ValueError("not a 64-bit ELF file")
    try:
        (offset,) = struct.unpack_from("<Q", cubin, 0x28)
        size, count, names_index = struct.unpack_from("<HHH", cubin, 0x3A)
        headers = [struct.unpack_from("<IIQQQQIIQQ", cubin, offset + i * size) for i in range(count)]
        names = headers[names_index]
        out = []
        for name, kind, _, _, at, length, _, info, _, _ in headers:
            start = names[4] + name
            text = cubin[start : cubin.index(b"\0", start)].decode()
            out.append(Section(text, b"" if kind == 8 else cubin[at : at + length], length, info))
        return out
    except (struct.error, IndexError, UnicodeDecodeError) as e:
        raise ValueError(f"damaged ELF file: {e}") from e


def _attributes(data: bytes) -> Iterator[tuple[int, bytes]]:
    at = 0
    while at + 4 <= len(data):
        form, attribute, value = struct.unpack_from("<BBH", data, at)
        at += 4
        if form == _SVAL:
            yield attribute, data[at : at + value]
            at += value
        else:
            yield attribute, struct.pack("<H", value)


def kernels(cubin: bytes) -> list[KernelInfo]:
    """The kernels of a cubin, in order of their code."""
    all_sections = sections(cubin)
    by_name = {s.name: s for s in all_sections}
    symbols = _symbol_names(by_name)
    registers: dict[str, int] = {}
    frames: dict[str, int] = {}
    for attribute, payload in _attributes(by_name[".nv.info"].data if ".nv.info" in by_name else b""):
        if attribute in (_REGCOUNT, _FRAME_SIZE) and len(payload) >= 8:
            symbol, value = struct.unpack_from("<II", payload)
            (registers if attribute == _REGCOUNT else frames)[symbols.get(symbol, "")] = value
    out = []
    for s in all_sections:
        name = s.name.removeprefix(".text.")
        info = by_name.get(f".nv.info.{name}")
        if name == s.name or info is None:
            continue
        sizes: dict[int, int] = {}
        max_threads = max_registers = None
        for attribute, payload in _attributes(info.data):
            if attribute == _KPARAM_INFO and len(payload) >= 12:
                _, ordinal, _, packed = struct.unpack_from("<IHHI", payload)
                sizes[ordinal] = packed >> 18
            elif attribute == _MAX_THREADS and len(payload) >= 12:
                x, y, z = struct.unpack_from("<III", payload)
                max_threads = x * y * z
            elif attribute == _MAXREG:
                (max_registers,) = struct.unpack_from("<H", payload)
        shared = by_name.get(f".nv.shared.{name}")
        out.append(
            KernelInfo(
                name=name,
                registers=registers.get(name, 0),
                frame=frames.get(name, 0),
                static_shared=shared.size if shared else 0,
                code_bytes=s.size,
                max_threads=max_threads,
                max_registers=max_registers,
                parameters=tuple(sizes[i] for i in sorted(sizes)),
            )
        )
    return out


def _symbol_names(by_name: dict[str, Section]) -> dict[int, str]:
    table, strings = by_name.get(".symtab"), by_name.get(".strtab")
    if table is None or strings is None:
        return {}
    out = {}
    for i in range(len(table.data) // 24):
        (at,) = struct.unpack_from("<I", table.data, 24 * i)
        out[i] = strings.data[at : strings.data.index(b"\0", at)].decode(errors="replace")
    return out
