"""The generated part of ``docs/language.md``: the tables of operations, from the tables that the compiler itself reads.

``python -m cake.docs`` rewrites the text between the markers; ``--check`` only says whether it is up to date.
"""

from __future__ import annotations

import sys
from collections.abc import Iterable
from pathlib import Path

from cake.ir.elementwise import ELEMENTWISE, Elementwise
from cake.ir.ops import ALL, OPS, OpRow

LANGUAGE = Path(__file__).parents[1] / "docs" / "language.md"
BEGIN, END = "<!-- operations: begin, written by python -m cake.docs -->", "<!-- operations: end -->"

EXECUTORS = {"lanes": "all threads", "warp": "one thread a warp", "one": "one thread"}
COMPLETIONS = {
    "barrier": "the stage's barrier",
    "wgmma": "its wgmma group",
    "bulk": "its bulk group",
    "cp_async": "its cp.async group",
}


def _cell(text: str) -> str:
    return text.replace("|", "\\|").replace("\n", " ")


def _code(text: str) -> str:
    return f"`{_cell(text)}`" if text else ""


def table(head: Iterable[str], rows: Iterable[Iterable[str]]) -> str:
    """A Markdown table."""
    head = list(head)
    lines = [head, ["---"] * len(head), *map(list, rows)]
    return "\n".join("| " + " | ".join(line) + " |" for line in lines)


def _targets(row: OpRow) -> str:
    return "all" if row.targets == ALL else ", ".join(sorted(row.targets))


def _reason(reason: str) -> str:
    return "exact" if reason in ("exact", "moves bits") else reason


def _sum(row: OpRow) -> str:
    if not row.roundings:
        return _reason(row.reason)
    narrow = f" ({row.narrow_roundings:g} with 8-bit operands)" if row.narrow_roundings else ""
    return f"within {row.roundings:g}{narrow} units of 2^-23 of the addends' magnitudes, an addend: {row.reason}"


def _accuracy(row: Elementwise) -> str:
    bounds = [f"{row.ulp:g} ulp"] if row.ulp else []
    bounds += [f"{row.absolute:g}"] if row.absolute else []
    said = f"within {' or '.join(bounds)}: {row.reason}" if bounds else _reason(row.reason)
    return f"{said}; subnormals count as zero" if row.ftz else said


def _operation(row: OpRow) -> list[str]:
    done = ", ".join(COMPLETIONS[c] for c in row.completes) or "at once"
    width = row.width if row.width != "thread" else EXECUTORS[row.executor]
    return [_code(row.surface), _cell(row.summary), width, done, _targets(row), _cell(_sum(row))]


def _elementwise(row: Elementwise) -> list[str]:
    takes = {"any": "any type", "number": "numbers", "int": "integers", "float": "floats", "bool": "bool"}[row.operands]
    gives = {"same": "the same type", "bool": "bool", "dtype": "the type it names"}[row.result]
    return [_code(row.name), str(row.arity), takes, gives, _cell(_accuracy(row))]


def operations() -> str:
    """The tables of operations and elementwise functions."""
    written = [row for row in OPS.values() if row.surface]
    return "\n\n".join(
        (
            table(
                ("form", "meaning", "executed by", "complete", "targets", "agreement of simulator and GPU"),
                map(_operation, written),
            ),
            table(
                ("function", "operands", "takes", "gives", "agreement of simulator and GPU"),
                map(_elementwise, ELEMENTWISE.values()),
            ),
        )
    )


def updated(text: str) -> str:
    """The document with the generated part renewed; ValueError if it has no markers."""
    before, found, rest = text.partition(BEGIN)
    _, closed, after = rest.partition(END)
    if not found or not closed:
        raise ValueError("the document has no markers for the tables of operations")
    return f"{before}{BEGIN}\n\n{operations()}\n\n{END}{after}"


def main(arguments: list[str]) -> int:
    """Rewrite the document, or check it."""
    text = LANGUAGE.read_text(encoding="utf-8")
    new = updated(text)
    if "--check" in arguments:
        return int(new != text)
    LANGUAGE.write_text(new, encoding="utf-8")
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
