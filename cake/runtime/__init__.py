"""Launching built kernels from Python: checks, tensor maps, parameters, streams. Needs the CUDA driver and nothing
else; torch and CuPy are used where the caller uses them."""

from __future__ import annotations

from pathlib import Path

from cake.codegen.build import Artifact
from cake.codegen.sequences import MANIFEST, SequenceArtifact, read_sequence
from cake.runtime.driver import Driver
from cake.runtime.launcher import LoadedKernel
from cake.runtime.launcher import load as load_kernel
from cake.runtime.sequences import LoadedSequence

__all__ = ["LoadedKernel", "LoadedSequence", "load", "load_kernel"]


def load(
    artifact: Artifact | SequenceArtifact | Path | str, *, driver: Driver | None = None
) -> LoadedKernel | LoadedSequence:
    """A callable for an artifact of a kernel or a sequence, or for the directory of one."""
    if isinstance(artifact, Path | str) and (Path(artifact) / MANIFEST).exists():
        artifact = read_sequence(artifact)
    if isinstance(artifact, SequenceArtifact):
        return LoadedSequence(artifact, driver=driver)
    return load_kernel(artifact, driver=driver)
