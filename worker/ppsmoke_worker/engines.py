"""Which engine to use, decided once per process."""

from __future__ import annotations

import os
from collections.abc import Callable
from dataclasses import dataclass

from ppsmoke.stub_model import parse_stub_model
from ppsmoke_worker.device import prepare_device
from ppsmoke_worker.engine import Engine, EngineConfig
from ppsmoke_worker.stub import StubEngine


@dataclass(frozen=True, slots=True)
class Engines:
    """`load` an engine for a range; `count_layers` of a model without loading it."""

    load: Callable[[EngineConfig], Engine]
    count_layers: Callable[[str], int]


def stub_engines(stage: int | None) -> Engines:
    def load(config: EngineConfig) -> Engine:
        return StubEngine(config, stage)

    return Engines(load, lambda model: parse_stub_model(model).layers)


def real_engines(device: str | None, weights: str) -> Engines:
    """Raises CompilerUnavailable and DeviceUnavailable."""
    settings = prepare_device(device, os.environ)
    # Here and not above: the stub must run where tinygrad is absent, and tinygrad reads its settings from the
    # environment while it is imported.
    from ppsmoke_worker.tinygrad_engine import TinygradEngine, count_layers

    def load(config: EngineConfig) -> Engine:
        return TinygradEngine(config, settings, weights=weights)

    return Engines(load, count_layers)
