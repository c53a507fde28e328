"""Sends a run's spans to an OpenTelemetry collector (OTLP over HTTP), when the standard variables name one.

OTEL_EXPORTER_OTLP_ENDPOINT or OTEL_EXPORTER_OTLP_TRACES_ENDPOINT switches it on; headers, certificates and compression
follow the other standard variables. The libraries come with the extra `pp-smoke-run[otel]`. Whatever goes wrong here is
one line of warning: it happens after the run and must not harm it.
"""

from __future__ import annotations

import threading
from collections.abc import Callable, Mapping
from importlib import import_module
from pathlib import Path
from urllib.parse import urlsplit

from ppsmoke.errors import PpError
from ppsmoke.signals import signals_held

EXPORT_S = 5.0
_ENDPOINTS = ("OTEL_EXPORTER_OTLP_TRACES_ENDPOINT", "OTEL_EXPORTER_OTLP_ENDPOINT")
_PROTOCOLS = ("OTEL_EXPORTER_OTLP_TRACES_PROTOCOL", "OTEL_EXPORTER_OTLP_PROTOCOL")
_HTTP = "http/protobuf"


def wanted(environ: Mapping[str, str]) -> bool:
    """Whether the user's environment asks for an export."""
    on = (
        environ.get("OTEL_SDK_DISABLED", "").lower() != "true" and environ.get("OTEL_TRACES_EXPORTER", "otlp") == "otlp"
    )
    return on and any(environ.get(name) for name in _ENDPOINTS)


def export_run(
    directory: Path, environ: Mapping[str, str], warn: Callable[[str], None], *, within_s: float = EXPORT_S
) -> None:
    """Send the spans of the run whose bundle this is, if that is wanted; after `within_s` it is given up. `environ`
    must be that of the process, which the library reads. Never raises; `warn` gets at most one line."""
    if not wanted(environ):
        return
    protocol = next((environ[name] for name in _PROTOCOLS if environ.get(name)), _HTTP)
    if protocol != _HTTP:
        warn(f"spans were not exported: {protocol} is not spoken here, only {_HTTP}")
        return
    failed: list[str] = []
    address = next((environ[name] for name in _ENDPOINTS if environ.get(name)), "")
    export = threading.Thread(target=_guarded, args=(directory, address, failed), name="telemetry", daemon=True)
    with signals_held():
        export.start()
    export.join(within_s)
    if export.is_alive():
        warn(f"spans were not exported: {collector(address)} gave no answer within {within_s:g} s")
    elif failed:
        warn(f"spans were not exported: {failed[0]}")


def collector(address: str) -> str:
    """The host and port of an endpoint's address in words, and nothing else of it, which may hold credentials."""
    try:
        parts = urlsplit(address)
        host, port = parts.hostname, parts.port or {"http": 80, "https": 443}.get(parts.scheme)
    except ValueError:
        host, port = None, None
    return f"the collector at {host}:{port}" if host and port else "the collector, whose address is none,"


def _guarded(directory: Path, address: str, failed: list[str]) -> None:
    try:
        # Loaded only here: few runs want it, and it brings the whole report and the library along.
        import_module("ppsmoke.report.otlp").send_spans(directory, collector(address), timeout_s=EXPORT_S)
    except ImportError:
        failed.append("the libraries are missing; pip install 'pp-smoke-run[otel]'")
    except PpError as error:
        failed.append(error.what)
    except Exception as error:  # of a library, about a collector: its words may repeat the address
        failed.append(f"{type(error).__name__} while they were sent to {collector(address)}")
