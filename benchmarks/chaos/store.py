"""The directory between ``build`` and ``run``: an index, a zipped artifact for each kernel, arrays for each launch.

Arrays are kept as bits (unsigned integers), so that the reading side needs no more than NumPy for them.
"""

from __future__ import annotations

import json
import tempfile
import zipfile
from collections.abc import Mapping
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from cake.codegen.build import Artifact, read, write

if TYPE_CHECKING:
    from benchmarks.chaos.parents import Case

INDEX = "index.json"
Arrays = dict[str, Any]


@dataclass
class Item:
    """A kernel to run on the launch ``case``. ``number``: its class in docs/verification.md 2.2 (0: no mutant). ``expect``: safe
    ones must be right; of unsafe ones ``codes`` says why. ``own``: its reference is its own, not that of the launch."""

    name: str
    case: str
    expect: str
    number: int = 0
    what: str = ""
    codes: list[str] = field(default_factory=list)
    own: bool = False
    translation: bool = True
    serialised: bool = False


@dataclass
class Index:
    """What was built. ``cases``: dtypes and directions of tensors, scalars and tolerances of each launch. ``refused``: mutants
    that could not be built, with the reason; ``left``: how many were judged and not taken, by verdict."""

    items: list[Item]
    cases: dict[str, dict[str, Any]]
    refused: list[dict[str, Any]] = field(default_factory=list)
    left: dict[str, int] = field(default_factory=dict)
    seconds: float = 0.0

    def save(self, directory: Path) -> None:
        """Write the index."""
        (directory / INDEX).write_text(json.dumps(asdict(self), indent=1) + "\n")


def index(directory: Path) -> Index:
    """The index of a directory."""
    record = json.loads((directory / INDEX).read_text())
    return Index(**{**record, "items": [Item(**i) for i in record["items"]]})


def bits(array: Any) -> Any:
    """An array's elements as unsigned integers."""
    flat = np.ascontiguousarray(array)
    return flat.view(f"u{flat.dtype.itemsize}")


# ---- launches --------------------------------------------------------------------------------------------------------


def save_case(directory: Path, case: Case, outputs: Mapping[str, Any]) -> dict[str, Any]:
    """Write inputs and reference of a launch; its entry in the index."""
    tensors = {t.name: t for t in case.kernel.tensors}
    arrays = {f"in/{n}": bits(case.arguments[n]) for n, t in tensors.items() if t.direction != "out"}
    arrays |= {f"out/{n}": bits(a) for n, a in outputs.items()}
    (directory / "cases").mkdir(parents=True, exist_ok=True)
    np.savez_compressed(directory / "cases" / f"{case.name}.npz", **arrays)
    return {
        "dtypes": {n: t.dtype for n, t in tensors.items()},
        "shapes": {n: list(case.arguments[n].shape) for n in tensors},
        "outputs": [n for n, t in tensors.items() if t.direction != "in"],
        "scalars": {n: v for n, v in case.arguments.items() if n not in tensors},
        "tolerance": dict(case.tolerance),
    }


def load_case(directory: Path, name: str) -> Arrays:
    """The arrays of a launch: ``in/<tensor>`` and ``out/<tensor>``."""
    with np.load(directory / "cases" / f"{name}.npz") as data:
        return {n: data[n] for n in data.files}


# ---- kernels ---------------------------------------------------------------------------------------------------------


def _place(directory: Path, name: str) -> Path:
    return directory / "items" / f"{name}.zip"


def save_item(directory: Path, name: str, artifact: Artifact, own: Mapping[str, Any] | None = None) -> None:
    """Write a kernel as one file. ``own``: its reference, where it is not that of the launch."""
    place = _place(directory, name)
    place.parent.mkdir(parents=True, exist_ok=True)
    with tempfile.TemporaryDirectory(prefix="cake-") as scratch:
        where = Path(scratch)
        write(artifact, where, ("cubin", "expand"))
        if own is not None:
            np.savez_compressed(where / "own.npz", **{f"out/{n}": bits(a) for n, a in own.items()})
        with zipfile.ZipFile(place, "w", zipfile.ZIP_DEFLATED) as packed:
            for file in sorted(where.iterdir()):
                packed.write(file, file.name)


def drop_item(directory: Path, name: str) -> None:
    """Remove a kernel that is one too many."""
    _place(directory, name).unlink(missing_ok=True)


def load_item(directory: Path, name: str) -> tuple[Artifact, Arrays]:
    """A kernel and its own reference, if it has one."""
    with tempfile.TemporaryDirectory(prefix="cake-") as scratch:
        where = Path(scratch)
        with zipfile.ZipFile(_place(directory, name)) as packed:
            packed.extractall(where)
        own: Arrays = {}
        if (where / "own.npz").exists():
            with np.load(where / "own.npz") as data:
                own = {n: data[n] for n in data.files}
        return read(where), own
