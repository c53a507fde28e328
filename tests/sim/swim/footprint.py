"""How much memory an object holds on to, itself and all that only hangs on it."""

from __future__ import annotations

import gc
import sys
from types import BuiltinFunctionType, FunctionType, ModuleType

_SHARED = (type, ModuleType, FunctionType, BuiltinFunctionType)


def footprint(root: object) -> int:
    """Bytes, without classes, modules and functions."""
    seen = {id(root)}
    waiting = [root]
    total = 0
    while waiting:
        thing = waiting.pop()
        total += sys.getsizeof(thing)
        for part in gc.get_referents(thing):
            if id(part) not in seen and not isinstance(part, _SHARED):
                seen.add(id(part))
                waiting.append(part)
    return total
