"""`pp-worker`, also `python -m ppsmoke_worker`."""

from __future__ import annotations

import os
import signal
import sys
import time
import traceback
from collections.abc import Sequence

from ppsmoke.errors import PpError, WorkerFailed
from ppsmoke.worker_decoder import MessageDecoder
from ppsmoke_worker.channel import EventWriter, RequestReader, die_with, open_step_socket
from ppsmoke_worker.engine import unheard
from ppsmoke_worker.engines import real_engines, stub_engines
from ppsmoke_worker.progress_lines import ProgressLines
from ppsmoke_worker.server import Server
from ppsmoke_worker.settings import WorkerSettings, read_settings


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
            die_with(settings.parent)
        status = _serve(settings, writer)
        sys.stderr.flush()
        # Taking tinygrad's graphs apart at interpreter exit takes about a second that nobody needs.
        os._exit(status)
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
        steps=None if settings.step_fd is None else open_step_socket(settings.step_fd),
    )
    reader.start()
    engines = stub_engines(settings.stage) if settings.stub else real_engines(settings.engine)
    server = Server(
        reader,
        writer,
        engines,
        stage=settings.stage,
        num_stages=settings.num_stages,
        device=settings.device,
        progress=unheard if settings.parent is None else ProgressLines(writer, time.monotonic),
    )
    server.start(settings.model, settings.context)
    return server.serve()


def _fatal(writer: EventWriter, error: PpError) -> int:
    try:
        writer.fatal(error)
    except BrokenPipeError:
        return error.exit_status
    return error.exit_status


if __name__ == "__main__":
    sys.exit(main())
