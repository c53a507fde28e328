"""One tiny kernel before anything else: does the device compute, and does its compiler build what runs here?"""

from __future__ import annotations

from typing import Any

from tinygrad import Tensor

from ppsmoke.errors import CompilerUnavailable, DeviceUnavailable, PpError
from ppsmoke_worker.device import DeviceSettings, no_such_device


def check_device(settings: DeviceSettings, dtype: Any) -> None:
    """Raises CompilerUnavailable or DeviceUnavailable."""
    try:
        if (Tensor([1.0, 2.0], dtype=dtype).realize().float() + 1).sum().item() == 5.0:
            return
        problem = "it computes wrong sums"
    except PpError:
        raise
    except ModuleNotFoundError as error:
        raise no_such_device(settings.name) from error
    except Exception as error:
        problem = f"{type(error).__name__}: {error}"
        if settings.compiler is not None:
            raise CompilerUnavailable(
                f"the C compiler {' '.join(settings.compiler.command)} builds no kernel that runs here ({problem})",
                remedy="pip install ziglang, or name another clang by CC=/path/to/clang",
            ) from error
    raise DeviceUnavailable(
        f"the device {settings.name} does not work ({problem})", remedy="name another by --device, such as CPU"
    )
