"""The services that clients find at the edge, for reflection: one answer for all, also while no worker lives."""

from services.router.resources import access

NAMES: tuple[str, ...] = access.services()
