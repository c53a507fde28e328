"""The bits that the C kernels compute, by a thread count and by compiler flags.

    python -m tests.equivalence.kernel_bits MODEL THREADS[,THREADS...] [FLAG...]       one JSON object on stdout

For each number of threads: digests of the rows of a prompt given whole, in parts, and token by token, and of the logits
after each.
"""

from __future__ import annotations

import hashlib
import json
import os
import sys
from dataclasses import replace

import numpy as np
from ppsmoke_worker.compiler import compile_object
from ppsmoke_worker.device import prepare_device
from ppsmoke_worker.engine import EngineConfig
from ppsmoke_worker.threads import Threads

CONTEXT = 256
PROMPT = tuple(10 + (index * 17) % 200 for index in range(137))
CUTS = {"whole": (137,), "parts": (1, 2, 31, 32, 40, 31), "token by token": (1,) * 137}


def main() -> None:
    model, threads, *flags = sys.argv[1:]
    settings = prepare_device("CPU", os.environ)
    os.environ["CACHELEVEL"] = "0"  # tinygrad's cache does not know of flags
    assert settings.compiler is not None
    settings = replace(settings, compiler=replace(settings.compiler, flags=(*settings.compiler.flags, *flags)))
    if "-mno-avx512f" in flags:
        source = "#ifdef __AVX512F__\n#error these flags leave AVX-512 in\n#endif\nint nothing;\n"
        compile_object(settings.compiler, "x86_64", ("-march=native",), source)
    # tinygrad reads its settings while it is imported.
    from ppsmoke_worker.kernel_engine import KernelEngine
    from ppsmoke_worker.opened_model import count_layers

    found: dict[str, dict[str, str]] = {}
    for count in map(int, threads.split(",")):
        config = EngineConfig(model, 0, count_layers(model), CONTEXT, "CPU")
        engine = KernelEngine(config, settings, Threads(count, count))
        found[str(count)] = {name: _digest(engine, cut) for name, cut in CUTS.items()}
        engine.close()
    print(json.dumps(found))


def _digest(engine: object, cut: tuple[int, ...]) -> str:
    digest, position, pieces = hashlib.sha256(), 0, []
    for length in cut:
        tokens = PROMPT[position : position + length]
        rows = engine.forward("r", engine.embed(tokens), position, length > 1)  # type: ignore[attr-defined]
        pieces.append(rows.copy())
        position += length
    digest.update(np.concatenate(pieces).tobytes())
    digest.update(engine.logits(pieces[-1]).tobytes())  # type: ignore[attr-defined]
    engine.reset(None)  # type: ignore[attr-defined]
    return digest.hexdigest()


if __name__ == "__main__":
    main()
