"""The facts engine: linear integer inequalities and congruences over scalar expressions."""

from cake.facts.facts import Facts
from cake.facts.show import show

__all__ = ["Facts", "show"]
