"""Repairs: for a finding the few changes of the source that usually cure it, likely ones first.

They are guesses about text, guided by the places and names of a finding; whoever shows one has tried it (``cake.verify.fixes``).
"""

from __future__ import annotations

from collections.abc import Iterator

from cake.diagnostics import Diagnostic
from cake.verify.repairs import accesses, boxes, loops, matrix, order, stages
from cake.verify.repairs.finding import FAMILIES, Finding
from cake.verify.repairs.text import Repair, Text

KINDS = (stages, matrix, order, loops, accesses, boxes)
"""Modules of families; importing them registers these."""


def families(text: Text, d: Diagnostic) -> list[Iterator[Repair]]:
    """Changes that may cure a finding, from each family of repairs that knows its code."""
    found = Finding.of(d, text)
    return [family(text, found) for codes, family in FAMILIES if d.code in codes]


__all__ = ["KINDS", "Repair", "Text", "families"]
