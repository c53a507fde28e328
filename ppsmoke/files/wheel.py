"""The code of this process as a wheel, so that other machines can run the very same.

What is packed is what is imported here, wherever it comes from: an installed package, or a checkout that was changed a
moment ago. The form: https://packaging.python.org/en/latest/specifications/binary-distribution-format/
"""

from __future__ import annotations

import base64
import hashlib
import importlib.util
import zipfile
from collections.abc import Iterator
from importlib import metadata
from pathlib import Path

from ppsmoke.errors import EnvironmentFault

DISTRIBUTION = "pp-smoke-run"
_PACKAGES = ("ppsmoke", "ppsmoke_worker")
_LEFT_OUT = ("__pycache__",)
_TIME = (2020, 1, 1, 0, 0, 0)  # the same code gives the same wheel
_WHEEL = "Wheel-Version: 1.0\nGenerator: pp-smoke-run\nRoot-Is-Purelib: true\nTag: py3-none-any\n"


def build_wheel(folder: Path) -> Path:
    """Write the wheel into `folder`.

    Raises EnvironmentFault where this code was not installed, so that what it needs is not known, or for a disk that
    does not take it.
    """
    try:
        about = metadata.distribution(DISTRIBUTION)
    except metadata.PackageNotFoundError:
        raise EnvironmentFault(
            f"{DISTRIBUTION} is not installed here, so its requirements are not known",
            remedy="install it, as with pip install --editable .",
        ) from None
    stem = f"{DISTRIBUTION.replace('-', '_')}-{about.version}"
    path = folder / f"{stem}-py3-none-any.whl"
    record: list[str] = []
    try:
        with zipfile.ZipFile(path, "w", zipfile.ZIP_DEFLATED) as wheel:
            for name, data in _members(about, f"{stem}.dist-info"):
                wheel.writestr(zipfile.ZipInfo(name, _TIME), data, zipfile.ZIP_DEFLATED)
                digest = base64.urlsafe_b64encode(hashlib.sha256(data).digest()).rstrip(b"=").decode()
                record.append(f"{name},sha256={digest},{len(data)}")
            name = f"{stem}.dist-info/RECORD"
            text = "\n".join([*record, f"{name},,", ""])
            wheel.writestr(zipfile.ZipInfo(name, _TIME), text, zipfile.ZIP_DEFLATED)
    except OSError as error:
        raise EnvironmentFault(f"the wheel of this code cannot be written: {error}") from error
    return path


def _members(about: metadata.Distribution, info: str) -> Iterator[tuple[str, bytes]]:
    for package in _PACKAGES:
        spec = importlib.util.find_spec(package)
        if spec is None or not spec.submodule_search_locations:
            raise EnvironmentFault(f"the package {package} is not installed here")
        root = Path(spec.submodule_search_locations[0])
        for file in sorted(root.rglob("*")):
            if file.is_file() and not set(_LEFT_OUT) & set(file.parts):
                yield f"{package}/{file.relative_to(root).as_posix()}", file.read_bytes()
    for name in ("METADATA", "entry_points.txt"):
        yield f"{info}/{name}", (about.read_text(name) or "").encode()
    yield f"{info}/WHEEL", _WHEEL.encode()
