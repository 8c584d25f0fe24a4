"""All litmus programs, their verdicts, and the JSON files that freeze them.

``python -m tests.litmus.catalogue`` writes the files of ``tests/litmus/programs`` anew; a test holds them equal to the
builders, so that a change of the expanded IR shows as a change of these files.
"""

from __future__ import annotations

import json
import tomllib
from pathlib import Path
from typing import Any, Literal

from pydantic import BaseModel

from cake.ir.expanded import Kernel
from tests.litmus import clusters, copies, flags, lanes, protocol, visibility
from tests.litmus.registry import PROGRAMS

HERE = Path(__file__).parent
FAMILIES = (visibility, copies, clusters, protocol, flags, lanes)


class Verdict(BaseModel):
    """One row of ``verdicts.toml``; its head comment explains the fields."""

    title: str
    verdict: Literal["safe", "unsafe", "refused"]
    codes: list[str]
    isa: str
    practice: list[str] | None = None
    faults: list[int] = []
    ctas: int = 1
    sizes: list[dict[str, int]] = []
    runs: list[list[str]] = []

    def expected(self) -> list[tuple[dict[str, int], list[str]]]:
        """Launch values and the codes that they must give."""
        return list(zip(self.sizes, self.runs, strict=True)) if self.sizes else [({}, self.codes)]


def verdicts() -> dict[str, Verdict]:
    """The table, by program."""
    rows: dict[str, Any] = tomllib.loads((HERE / "verdicts.toml").read_text())
    return {name: Verdict.model_validate(row) for name, row in rows.items()}


def kernel(name: str) -> Kernel:
    """The program ``name``."""
    return PROGRAMS[name]()


def _short(value: Any) -> Any:
    """``value`` as plain JSON, defaults left out (but every ``kind`` kept: it tells the nodes apart)."""
    if isinstance(value, BaseModel):
        fields = type(value).model_fields
        kept = {name: getattr(value, name) for name in fields}
        return {
            n: _short(v) for n, v in kept.items() if n == "kind" or fields[n].is_required() or v != fields[n].default
        }
    if isinstance(value, dict):
        return {key: _short(v) for key, v in value.items()}
    return [_short(v) for v in value] if isinstance(value, tuple | list) else value


def text(k: Kernel) -> str:
    """The JSON of a program."""
    return json.dumps(_short(k), indent=1) + "\n"


def frozen(name: str) -> Path:
    """The file that freezes ``name``."""
    return HERE / "programs" / f"{name}.json"


def main() -> None:
    """Write every program."""
    (HERE / "programs").mkdir(exist_ok=True)
    for name in PROGRAMS:
        frozen(name).write_text(text(kernel(name)))


if __name__ == "__main__":
    main()
