"""Methods: one file each. `base` says what a method may see and what it returns."""

from tokencover.methods.base import Choice, Method, TowerChoice, TowerView, View
from tokencover.methods.mob import MoB

__all__ = ["Choice", "Method", "MoB", "TowerChoice", "TowerView", "View"]
