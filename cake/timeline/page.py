"""One HTML file that needs nothing else: data, style and script inside, no address of anything outside."""

from __future__ import annotations

import html
import json
import re
from functools import cache
from pathlib import Path
from typing import Any

ASSETS = Path(__file__).with_name("assets")
SCRIPTS = ("lanes.js", "draw.js", "view.js")


def page(data: dict[str, Any]) -> str:
    """The page that draws a model (``cake.timeline.model``)."""
    title = f"{data['kernel']} for {data['target']}: one launch"
    parts = {
        "TITLE": html.escape(title),
        "STYLE": _asset("page.css"),
        "DATA": embedded(data),
        "SCRIPT": "\n".join(_asset(name) for name in SCRIPTS),
    }
    return re.sub(r"@([A-Z]+)@", lambda m: parts[m[1]], _asset("page.html"))


def embedded(data: Any) -> str:
    """JSON that ends no script element, whatever the names in it are."""
    text = json.dumps(data, separators=(",", ":"), ensure_ascii=True)
    return text.replace("&", "\\u0026").replace("<", "\\u003c").replace(">", "\\u003e")


@cache
def _asset(name: str) -> str:
    return (ASSETS / name).read_text(encoding="utf-8")
