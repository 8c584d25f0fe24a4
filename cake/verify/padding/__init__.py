"""N802: whether what lies past the data takes part in a result."""

from cake.verify.padding.reading import concerned, padding

__all__ = ["concerned", "padding"]
