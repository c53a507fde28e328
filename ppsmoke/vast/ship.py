"""The caller's own code on rented machines: they read its wheel from the caller, over iroh, and install that."""

from __future__ import annotations

import base64
import zlib
from importlib import metadata, resources

from ppsmoke.errors import EnvironmentFault

NEEDS = "iroh"
"""What a machine must have to read the wheel."""


def ship_environment() -> dict[str, str]:
    """What tells a start script to fetch the code. Raises EnvironmentFault where iroh's version is not known."""
    try:
        version = metadata.version(NEEDS)
    except metadata.PackageNotFoundError:
        raise EnvironmentFault(f"{NEEDS} is not installed here as a package") from None
    text = resources.files("ppsmoke.files").joinpath("bootstrap.py").read_bytes()
    return {
        "PP_BOOTSTRAP": base64.b64encode(zlib.compress(text, 9)).decode(),
        "PP_BOOTSTRAP_NEEDS": f"{NEEDS}=={version}",
    }
