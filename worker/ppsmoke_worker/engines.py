"""Which engine to use, decided once per process."""

from __future__ import annotations

import os
import sys
from collections.abc import Callable, Mapping
from dataclasses import dataclass

from ppsmoke.errors import BadNodeEnvironment, CompilerUnavailable, UnsupportedModel
from ppsmoke.stub_model import parse_stub_model
from ppsmoke.worker_variables import worker_variables
from ppsmoke_worker.device import DeviceSettings, is_cpu, prepare_device
from ppsmoke_worker.engine import Engine, EngineConfig
from ppsmoke_worker.stub import StubEngine
from ppsmoke_worker.threads import choose_threads


@dataclass(frozen=True, slots=True)
class Engines:
    """`load` an engine for a range; `count_layers` of a model without loading it."""

    load: Callable[[EngineConfig], Engine]
    count_layers: Callable[[str], int]


@dataclass(frozen=True, slots=True)
class EngineOptions:
    """What the user asked for; None leaves the choice here. `num_stages` share this machine's cores in prefill."""

    device: str | None = None
    engine: str | None = None
    weights: str | None = None
    threads: int | None = None
    num_stages: int | None = None


def engine_options(env: Mapping[str, str], device: str | None = None, num_stages: int | None = None) -> EngineOptions:
    """From the environment; raises BadNodeEnvironment."""
    engine, weights, threads = worker_variables(env)
    return EngineOptions(device, engine, weights, threads, num_stages)


def stub_engines(stage: int | None) -> Engines:
    def load(config: EngineConfig) -> Engine:
        return StubEngine(config, stage)

    return Engines(load, lambda model: parse_stub_model(model).layers)


def real_engines(options: EngineOptions) -> Engines:
    """Raises BadNodeEnvironment, CompilerUnavailable and DeviceUnavailable."""
    settings = prepare_device(options.device, os.environ)
    engine, reason = _choose(options, settings)
    threads = choose_threads(options.threads, options.num_stages)
    weights = options.weights or ("f32" if is_cpu(settings.name) else "f16")
    note = f"engine {engine} on {settings.name}: {reason}"
    if engine == "kernels":
        note += f"; {threads.decode} threads, {threads.prefill} in prefill"
    else:
        note += f"; weights as {weights}"
    print(note, file=sys.stderr, flush=True)

    # Here and not above: the stub must run where tinygrad is absent, and tinygrad reads its settings from the
    # environment while it is imported.
    from ppsmoke_worker.making import outlive_cache
    from ppsmoke_worker.opened_model import count_layers

    outlive_cache()

    def load(config: EngineConfig) -> Engine:
        if engine == "kernels":
            from ppsmoke_worker.kernel_engine import KernelEngine

            try:
                return KernelEngine(config, settings, threads)
            except (CompilerUnavailable, UnsupportedModel) as error:
                if options.engine is not None:
                    raise
                # A model that no engine supports is refused by the other one too.
                print(f"engine plain instead of kernels: {error.what}", file=sys.stderr, flush=True)
        from ppsmoke_worker.plain_engine import PlainEngine

        return PlainEngine(config, settings, weights=weights)

    return Engines(load, count_layers)


def _choose(options: EngineOptions, settings: DeviceSettings) -> tuple[str, str]:
    """The engine and why it is that one."""
    if options.engine == "kernels" and not is_cpu(settings.name):
        raise BadNodeEnvironment(
            f"the C kernels run on the CPU, not on {settings.name}", remedy="use --engine plain, or --device CPU"
        )
    if options.engine is not None:
        return options.engine, "as asked for"
    if not is_cpu(settings.name):
        return "plain", settings.reason
    if options.weights is not None:
        return "plain", "weights other than the file's were asked for"
    return "kernels", settings.reason
