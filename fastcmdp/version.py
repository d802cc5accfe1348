"""The version, in one place; the package and its metadata take it from here."""

from __future__ import annotations

__version__ = "0.2.0"
