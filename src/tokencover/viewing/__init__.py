"""Pictures of what was kept."""

from tokencover.viewing.overlay import overlay

__all__ = ["overlay"]
