"""Other devices use tinygrad's own copies and launches; on the CPU these give the bits of the CPU's own path."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

from fixtures.tiny_gguf import write_tiny_gguf

CODE = """
import json, sys
from ppsmoke_worker.engine import EngineConfig
from ppsmoke_worker.engines import EngineOptions, real_engines
engines = real_engines(EngineOptions("CPU", "plain"))
import ppsmoke_worker.plain_engine as plain_engine
from ppsmoke_worker.kernels import BoundKernels
def run():
    engine = engines.load(EngineConfig(sys.argv[1], 0, 3, 256, "CPU"))
    rows = engine.forward("r", engine.embed(range(10, 60)), 0, True)
    last = engine.forward("r", engine.embed([7]), 50, False)
    return [rows.tobytes().hex(), last.tobytes().hex(), engine.logits(last).tobytes().hex()]
ours = run()
plain_engine.is_cpu = lambda name: False
BoundKernels._native_calls = lambda self: None
print(json.dumps([ours, run()]))
"""


def test_copies_and_launches_by_tinygrad_give_the_same_bits(tmp_path: Path) -> None:
    path = write_tiny_gguf(tmp_path / "m.gguf", blocks=3)
    done = subprocess.run([sys.executable, "-c", CODE, str(path)], capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr[-2000:]
    native, generic = json.loads(done.stdout.splitlines()[-1])
    assert native == generic
