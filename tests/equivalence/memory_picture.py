"""A picture of a loaded engine's memory for neon_main.c, and what the engine itself computes from it.

python -m tests.equivalence.memory_picture MODEL FOLDER       writes FOLDER/{stage.c,picture,expected}
"""

from __future__ import annotations

import ctypes
import os
import struct
import sys
from pathlib import Path

import numpy as np
from ppsmoke_worker.device import prepare_device
from ppsmoke_worker.engine import EngineConfig
from ppsmoke_worker.threads import Threads

CONTEXT = 256
_NOWHERE = 1 << 62  # nothing points there
TOKENS = tuple(10 + (index * 17) % 200 for index in range(39))


def main() -> None:
    model, folder = sys.argv[1], Path(sys.argv[2])
    settings = prepare_device("CPU", os.environ)
    # tinygrad reads its settings while it is imported.
    from ppsmoke_worker.kernel_engine import KernelEngine
    from ppsmoke_worker.opened_model import count_layers

    engine = KernelEngine(EngineConfig(model, 0, count_layers(model), CONTEXT, "CPU"), settings, Threads(1, 1))
    rows = np.ascontiguousarray(engine.embed(TOKENS), np.float32)
    result = engine.forward("r", rows, 0, True)
    stage = engine._program.stage
    logits_bytes = stage.head.tiles * 64 * 4
    regions = [
        (ctypes.addressof(stage), bytes(stage)),
        (stage.block, bytes(engine._blocks)),
        (_NOWHERE, rows.tobytes()),
        (_NOWHERE, rows.nbytes),
        (_NOWHERE, logits_bytes),
        (_NOWHERE, engine._caches["r"].bytes.nbytes),
        (engine._weights.region.address, engine._weights.region.bytes.tobytes()),
        (engine._rope.address, engine._rope.bytes.tobytes()),
        (engine._scratch.address, engine._scratch.bytes.nbytes),
    ]
    logits = engine.logits(result)
    with (folder / "picture").open("wb") as file:
        file.write(struct.pack("<q", len(regions)))
        for address, content in regions:
            size = content if isinstance(content, int) else len(content)
            file.write(struct.pack("<qqq", address, size, not isinstance(content, int)))
            if not isinstance(content, int):
                file.write(content)
    padding = bytes(logits_bytes - logits.nbytes)
    (folder / "expected").write_bytes(result.tobytes() + logits.tobytes() + padding)
    (folder / "stage.c").write_text(engine._program.source + Path(__file__).with_name("neon_main.c").read_text())
    engine.close()


if __name__ == "__main__":
    main()
