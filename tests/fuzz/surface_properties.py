"""What holds for every text, whatever it is; shared by the tests and the fuzzer."""

from __future__ import annotations

from cake.diagnostics.fixes import apply_fixes
from cake.diagnostics.jsonout import from_json, to_json
from cake.diagnostics.text import render
from cake.ir import surface as s
from cake.ir.parser import parse_all
from cake.ir.printer import format_file


def check_text(text: str) -> bool:
    """Assert what holds for any text; give whether it is a program."""
    parsed, found = parse_all(text, "fuzz.cake")
    if parsed is None:
        assert found, "refused without a finding"
        assert any(d.severity == "error" for d in found)
        # Everything that is said about a text can be shown, sent and applied.
        assert render(found, {"fuzz.cake": text})
        assert list(from_json(to_json(found))) == found
        lines = text.removeprefix("\ufeff").replace("\r\n", "\n").split("\n")
        for diagnostic in found:
            span = diagnostic.span
            if span is not None:
                assert 1 <= span.line <= span.end_line <= len(lines)
                assert 1 <= span.column <= len(lines[span.line - 1]) + 1
        if "\r" not in text and "\ufeff" not in text:
            apply_fixes(text, found)
        return False
    assert not found
    printed = format_file(parsed)
    again, none = parse_all(printed)
    assert again == parsed and not none, "printing changed the meaning"
    assert format_file(again) == printed, "formatting is not stable"
    assert s.File.model_validate_json(parsed.model_dump_json()) == parsed
    return True
