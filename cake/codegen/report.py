"""What a compiled kernel uses: registers, spills, shared memory, and the instructions that decide its speed.

Registers and sizes are read from the cubin itself. Instruction counts need ``nvdisasm`` (a wheel, or a CUDA toolkit);
where there is none the report says so instead of guessing.
"""

from __future__ import annotations

import os
import re
import shutil
import subprocess
import sys
import tempfile
from collections import Counter
from pathlib import Path

from cake.codegen import elf
from cake.diagnostics import Record

CLASSES = {
    "tensor": ("HGMMA", "QGMMA", "IGMMA", "HMMA", "IMMA", "QMMA", "UTCHMMA", "UTCQMMA"),
    "tma": ("UTMALDG", "UTMASTG", "UTMAREDG", "UTMAPF", "UBLKCP"),
    "barrier": ("BAR", "SYNCS", "WARPSYNC", "UCGABAR_ARV", "UCGABAR_WAIT"),
    "local": ("LDL", "STL"),
    "global": ("LDG", "STG", "LDGSTS", "ATOMG", "REDG", "RED"),
    "shared": ("LDS", "STS", "LDSM", "STSM", "ATOMS"),
    "special": ("MUFU",),
    "float": ("FFMA", "FADD", "FMUL", "FMNMX", "FSETP", "FSEL", "HADD2", "HMUL2", "HFMA2", "F2F", "F2FP"),
    "uniform": ("R2UR",),
    "shuffle": ("SHFL",),
    "memory barrier": ("MEMBAR", "FENCE", "CCTL"),
}
"""Instruction classes that the report shows, by the opcodes they count."""

_INSTRUCTION = re.compile(r"/\*([0-9a-f]{4,})\*/\s+(?:@!?U?P\w+\s+)?([A-Z][A-Z0-9_]*)((?:\.[A-Za-z0-9_]+)*)")
_SPILL = re.compile(r"(\d+) bytes stack frame, (\d+) bytes spill stores, (\d+) bytes spill loads")
_SHARED = re.compile(r"Used \d+ registers.*?(\d+) bytes smem")


class Report(Record):
    """Resources of one kernel. Fields that could not be read are None. ``opcodes`` counts SASS instructions by opcode
    (without modifiers); ``note`` says what is missing."""

    kernel: str
    registers: int
    max_registers: int | None = None
    stack_bytes: int = 0
    spill_store_bytes: int | None = None
    spill_load_bytes: int | None = None
    static_shared_bytes: int = 0
    dynamic_shared_bytes: int = 0
    threads: int | None = None
    code_bytes: int = 0
    parameter_bytes: tuple[int, ...] = ()
    opcodes: dict[str, int] | None = None
    note: str | None = None

    @property
    def instructions(self) -> int | None:
        """SASS instructions in all, without the padding at the end."""
        return sum(n for op, n in self.opcodes.items() if op != "NOP") if self.opcodes is not None else None

    @property
    def spills(self) -> bool:
        """Whether registers live in local memory."""
        return bool(self.spill_store_bytes or self.spill_load_bytes or self.stack_bytes)

    def count(self, *opcodes: str) -> int | None:
        """How many instructions have one of these opcodes."""
        return sum(self.opcodes.get(op, 0) for op in opcodes) if self.opcodes is not None else None

    def render(self) -> str:
        """A few lines for the terminal."""
        cap = f" of {self.max_registers}" if self.max_registers else ""
        local = f"{self.stack_bytes} B stack a thread" if self.stack_bytes else "none"
        if self.spill_store_bytes or self.spill_load_bytes:
            local += f", spills {self.spill_store_bytes} B stored, {self.spill_load_bytes} B loaded"
        lines = [
            f"kernel     {self.kernel}" + (f", {self.threads} threads" if self.threads else ""),
            f"registers  {self.registers}{cap}",
            f"local      {local}",
            f"shared     {self.dynamic_shared_bytes} B dynamic, {self.static_shared_bytes} B static",
            f"code       {self.code_bytes} B"
            + (f", {self.instructions} instructions" if self.opcodes is not None else ""),
        ]
        if self.opcodes is not None:
            for title, names in CLASSES.items():
                found = [f"{n} {self.opcodes[n]}" for n in names if self.opcodes.get(n)]
                if found:
                    lines.append(f"  {title:<15}{', '.join(found)}")
        if self.note:
            lines.append(f"note       {self.note}")
        return "\n".join(lines)


def tool(name: str) -> str | None:
    """The path of a CUDA binary utility: from its wheel, else a toolkit, else PATH."""
    suffix = ".exe" if os.name == "nt" else ""
    places = [Path(entry) / "nvidia" / "cu13" / "bin" for entry in sys.path if entry]
    if home := os.environ.get("CUDA_HOME"):
        places.append(Path(home) / "bin")
    for place in places:
        candidate = place / (name + suffix)
        if candidate.is_file() and os.access(candidate, os.X_OK):
            return str(candidate)
    return shutil.which(name)


def disassemble(cubin: bytes) -> tuple[str | None, str | None]:
    """The SASS of a cubin, or the reason why there is none."""
    program = tool("nvdisasm")
    if program is None:
        return None, "no instruction counts: nvdisasm is not installed (pip install 'nvidia-cuda-nvdisasm>=13.0,<14')"
    with tempfile.TemporaryDirectory(prefix="cake-") as directory:
        path = Path(directory) / "kernel.cubin"
        path.write_bytes(cubin)
        try:
            done = subprocess.run(
                [program, "--print-code", str(path)], capture_output=True, text=True, timeout=120, check=False
            )
        except (OSError, subprocess.TimeoutExpired) as e:
            return None, f"no instruction counts: nvdisasm failed ({e})"
    if done.returncode != 0:
        first = (done.stderr or done.stdout).strip().splitlines()
        return None, f"no instruction counts: nvdisasm failed ({first[0] if first else done.returncode})"
    return done.stdout, None


def opcode_counts(sass: str) -> dict[str, int]:
    """Instructions by opcode, most frequent first."""
    return dict(Counter(m[2] for m in _INSTRUCTION.finditer(sass)).most_common())


def spills_of(log: str) -> tuple[int, int] | None:
    """(bytes stored, bytes loaded) that ptxas reports for the kernel and the functions it calls; None if the log has
    nothing."""
    stored = loaded = 0
    found = False
    for m in _SPILL.finditer(log):
        found = True
        stored += int(m[2])
        loaded += int(m[3])
    return (stored, loaded) if found else None


def report(
    cubin: bytes,
    *,
    kernel: str,
    log: str = "",
    dynamic_shared: int = 0,
    sass: str | None = None,
    note: str | None = None,
) -> Report:
    """Resources of ``kernel`` in a cubin. ``sass`` and ``note`` are what ``disassemble`` gave, where the caller has
    them."""
    if sass is None and note is None:
        sass, note = disassemble(cubin)
    info = next((k for k in elf.kernels(cubin) if k.name == kernel), None)
    if info is None:
        raise ValueError(f"the cubin has no kernel {kernel}")
    spills = spills_of(log)
    shared = _SHARED.search(log)
    return Report(
        kernel=kernel,
        registers=info.registers,
        max_registers=info.max_registers if info.max_registers not in (None, 255, 0) else None,
        stack_bytes=info.frame,
        spill_store_bytes=spills[0] if spills else None,
        spill_load_bytes=spills[1] if spills else None,
        static_shared_bytes=int(shared[1]) if shared else (0 if log else info.static_shared),
        dynamic_shared_bytes=dynamic_shared,
        threads=info.max_threads,
        code_bytes=info.code_bytes,
        parameter_bytes=info.parameters,
        opcodes=opcode_counts(sass) if sass is not None else None,
        note=note,
    )
