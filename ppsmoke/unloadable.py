"""A dependency that cannot be loaded, as a sentence."""

from __future__ import annotations

from ppsmoke.errors import EnvironmentFault


def unloadable(error: ImportError) -> EnvironmentFault:
    """The error for a user."""
    package = f"the package {error.name.partition('.')[0]}" if error.name else "a package"
    return EnvironmentFault(
        f"{package} cannot be loaded: {error}",
        remedy="Install pp-smoke-run again, and see its README for platforms that lack wheels.",
    )
