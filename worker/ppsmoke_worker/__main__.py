"""`pp-worker`, also `python -m ppsmoke_worker`."""

from __future__ import annotations

import ctypes
import os
import signal
import sys
import traceback
from collections.abc import Sequence

from ppsmoke.errors import PpError, WorkerFailed
from ppsmoke.stub_model import parse_stub_model
from ppsmoke.worker_protocol import MessageDecoder
from ppsmoke_worker.channel import EventWriter, RequestReader
from ppsmoke_worker.engine import Engine, EngineConfig
from ppsmoke_worker.server import CountLayers, LoadEngine, Server
from ppsmoke_worker.settings import WorkerSettings, read_settings
from ppsmoke_worker.stub import StubEngine

_PR_SET_PDEATHSIG = 1


def main(arguments: Sequence[str] | None = None) -> int:
    """Exit status 0 after shutdown or end of input; after a fatal line that of its error class."""
    if arguments is None:
        arguments = sys.argv[1:]
    if {"-h", "--help"} & set(arguments):
        read_settings(arguments, {})
    writer = EventWriter()
    # The terminal's Ctrl-C belongs to the orchestrator, which ends its workers in order.
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    try:
        settings = read_settings(arguments, os.environ)
        if settings.parent is not None:
            _die_with(settings.parent)
        return _serve(settings, writer)
    except BrokenPipeError:
        return 0
    except PpError as error:
        return _fatal(writer, error)
    except MemoryError:
        return _fatal(writer, WorkerFailed("out of memory while starting"))
    except Exception as error:
        traceback.print_exc(file=sys.stderr)
        return _fatal(writer, WorkerFailed(f"{type(error).__name__} while starting the worker: {error}"))


def _serve(settings: WorkerSettings, writer: EventWriter) -> int:
    reader = RequestReader(
        MessageDecoder(),
        supervised=settings.parent is not None,
        on_abrupt_shutdown=lambda: writer.line({"status": "stopped"}),
    )
    load_engine, count_layers = _engine_of(settings)
    server = Server(
        reader,
        writer,
        load_engine,
        count_layers,
        stage=settings.stage,
        num_stages=settings.num_stages,
        device=settings.device,
    )
    reader.start()
    server.start(settings.model, settings.context)
    return server.serve()


def _engine_of(settings: WorkerSettings) -> tuple[LoadEngine, CountLayers]:
    if settings.stub:

        def load_stub(config: EngineConfig) -> Engine:
            return StubEngine(config, settings.stage)

        return load_stub, lambda model: parse_stub_model(model).layers

    # Here and not above: the stub must run where tinygrad and gguf are absent.
    from ppsmoke_worker.tinygrad_engine import TinygradEngine, count_layers

    def load_real(config: EngineConfig) -> Engine:
        return TinygradEngine(config, weights=settings.weights)

    return load_real, count_layers


def _die_with(parent: int) -> None:
    if sys.platform == "linux":
        ctypes.CDLL(None).prctl(_PR_SET_PDEATHSIG, signal.SIGKILL)
    if os.getppid() != parent:  # it died before the line above
        os._exit(0)


def _fatal(writer: EventWriter, error: PpError) -> int:
    try:
        writer.fatal(error)
    except BrokenPipeError:
        return error.exit_status
    return error.exit_status


if __name__ == "__main__":
    sys.exit(main())
