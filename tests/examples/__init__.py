"""The examples, simulated, ordered and compiled."""

from pathlib import Path

EXAMPLES = Path(__file__).parents[2] / "examples"
