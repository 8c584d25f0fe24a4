"""``cake explain``: the page of a code, or all codes."""

from __future__ import annotations

import difflib
from typing import Any

from cake.cli.outcome import error


def explain_code(code: str) -> tuple[dict[str, Any], str]:
    """The page of one code, as JSON and as text."""
    from cake.diagnostics.codes import all_codes, explain

    try:
        page = explain(code)
    except KeyError:
        near = difflib.get_close_matches(code.strip().upper(), all_codes(), n=3, cutoff=0.5)
        help = f"did you mean {', '.join(near)}?" if near else "`cake explain` lists all codes"
        raise error("X005", f"there is no page for `{code.strip()[:40]}`", help) from None
    return page.model_dump(mode="json"), f"{page.code}: {page.title} ({page.severity})\n\n{page.markdown}"


def list_codes() -> tuple[dict[str, Any], str]:
    """All codes with their titles."""
    from cake.diagnostics.codes import all_codes, explain

    pages = [explain(code) for code in all_codes()]
    rows = [{"code": p.code, "title": p.title, "severity": p.severity} for p in pages]
    return {"codes": rows}, "\n".join(f"{p.code}  {p.severity:<7}  {p.title}" for p in pages)
