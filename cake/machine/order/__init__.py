"""The order reading of the machine: happened, visible to ordinary loads, visible to the async proxy."""

from cake.machine.order.check import check
from cake.machine.order.conflicts import Profile
from cake.machine.order.reader import Order

__all__ = ["Order", "Profile", "check"]
