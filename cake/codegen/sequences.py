"""Artifacts of sequences: one directory with a manifest, and one of each kernel's artifact in it, in the order of the steps."""

from __future__ import annotations

import json
from collections.abc import Collection
from pathlib import Path
from typing import Any

from pydantic import ValidationError

import cake
from cake.codegen import build as kernels
from cake.codegen.build import FORMAT, LOADABLE, Artifact, Stamp, replace_file
from cake.diagnostics import CakeError, Diagnostic, Record
from cake.ir.sequences import Sequence

MANIFEST = "sequence.json"


class SequenceArtifact(Record):
    """A compiled sequence: ``artifacts`` has one entry a step (steps with the same kernel have equal ones)."""

    sequence: Sequence
    artifacts: tuple[Artifact, ...]

    @property
    def diagnostics(self) -> tuple[Diagnostic, ...]:
        """Remarks of every kernel."""
        return tuple(dict.fromkeys(found for a in self.artifacts for found in a.diagnostics))

    @property
    def unproved(self) -> tuple[str, ...]:
        """Codes of what is not proved of some kernel."""
        return tuple(dict.fromkeys(code for a in self.artifacts for code in a.stamp.unproved))


def build_sequence(
    sequence: Sequence,
    *,
    allow: Collection[str] = (),
    stamps: Collection[Stamp | None] | None = None,
    chaos: int | None = None,
) -> SequenceArtifact:
    """Compile the kernel of every step. ``stamps``: what is known of each step's kernel. ``chaos``: as for a kernel."""
    known = list(stamps) if stamps is not None else [None] * len(sequence.steps)
    return SequenceArtifact(
        sequence=sequence,
        artifacts=tuple(
            kernels.build(step.kernel, allow=allow, stamp=stamp, chaos=chaos)
            for step, stamp in zip(sequence.steps, known, strict=True)
        ),
    )


def place(number: int, name: str) -> str:
    """The directory of a step: its number keeps the order, and two steps of one kernel apart."""
    return f"{number}-{name}"


def manifest(artifact: SequenceArtifact) -> dict[str, Any]:
    """What the sequence's manifest says."""
    s = artifact.sequence
    return {
        "format": FORMAT,
        "name": s.name,
        "target": s.target,
        "constants": dict(s.constants),
        "guards": [g.text for g in s.guards],
        "assumes": [a.text for a in s.assumes],
        "workspace": [t.model_dump(mode="json", exclude={"span"}) for t in s.temps],
        "steps": [
            {
                "kernel": step.kernel.name,
                "directory": place(n, step.kernel.name),
                "constants": dict(step.kernel.constants),
                "tensors": step.tensors,
            }
            for n, step in enumerate(s.steps)
        ],
        "cake": cake.__version__,
        "proved": not artifact.unproved,
        "unproved": list(artifact.unproved),
        "sequence": s.model_dump(mode="json"),
    }


def write_sequence(artifact: SequenceArtifact, directory: Path | str, emit: Collection[str] = LOADABLE) -> Path:
    """Write every kernel's artifact and the manifest, last."""
    out = Path(directory)
    for n, part in enumerate(artifact.artifacts):
        kernels.write(part, out / place(n, part.kernel.name), emit)
    try:
        replace_file(out / MANIFEST, json.dumps(manifest(artifact), indent=1).encode() + b"\n")
    except OSError as e:
        raise _refuse(out, f"it cannot be written: {e.strerror}") from e
    return out


def read_sequence(directory: Path | str) -> SequenceArtifact:
    """The artifact of a directory that ``write_sequence`` wrote."""
    where = Path(directory)
    try:
        record = json.loads((where / MANIFEST).read_bytes())
        if record.get("format") != FORMAT:
            raise _refuse(where, f"its format is {record.get('format')}, this Cake reads {FORMAT}")
        sequence = Sequence.model_validate_json(json.dumps(record["sequence"]))
        steps = [step["directory"] for step in record["steps"]]
    except OSError as e:
        raise _refuse(where, f"{e.filename or where}: {e.strerror}") from e
    except (KeyError, TypeError, ValueError, AttributeError, ValidationError) as e:
        raise _refuse(where, "its manifest is damaged", f"{type(e).__name__}: {e}") from e
    parts = tuple(kernels.read(where / name) for name in steps)
    if tuple(a.kernel for a in parts) != tuple(step.kernel for step in sequence.steps):
        raise _refuse(where, "its kernels are not those that the manifest names")
    return SequenceArtifact(sequence=sequence, artifacts=parts)


def _refuse(where: Path, why: str, *facts: str) -> CakeError:
    return CakeError(
        Diagnostic(
            code="G010",
            severity="error",
            message=f"{where} does not hold a usable sequence: {why}.",
            help="build the sequence again",
            facts=facts,
        )
    )
