"""Sends a run's spans to an OpenTelemetry collector (OTLP over HTTP), when the standard variables name one.

OTEL_EXPORTER_OTLP_ENDPOINT or OTEL_EXPORTER_OTLP_TRACES_ENDPOINT switches it on; headers, certificates and compression
follow the other standard variables. The libraries come with the extra `pp-smoke-run[otel]`. Whatever goes wrong here is
one line of warning: it happens after the run and must not harm it.
"""

from __future__ import annotations

import logging
import threading
from collections.abc import Callable, Mapping
from importlib import import_module
from pathlib import Path
from typing import Any

from ppsmoke import __version__
from ppsmoke.errors import PpError
from ppsmoke.report.analysis import analyse
from ppsmoke.report.source import read_story
from ppsmoke.report.spans import Span, run_spans
from ppsmoke.signals import signals_held

EXPORT_S = 5.0
_ENDPOINTS = ("OTEL_EXPORTER_OTLP_TRACES_ENDPOINT", "OTEL_EXPORTER_OTLP_ENDPOINT")
_PROTOCOLS = ("OTEL_EXPORTER_OTLP_TRACES_PROTOCOL", "OTEL_EXPORTER_OTLP_PROTOCOL")
_HTTP = "http/protobuf"
_BATCH = 1000


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
    export = threading.Thread(target=_guarded, args=(directory, failed), name="telemetry", daemon=True)
    with signals_held():
        export.start()
    export.join(within_s)
    if export.is_alive():
        warn(f"spans were not exported: the collector did not take them within {within_s:g} s")
    elif failed:
        warn(f"spans were not exported: {failed[0]}")


def _guarded(directory: Path, failed: list[str]) -> None:
    try:
        _export(directory)
    except ImportError:
        failed.append("the libraries are missing; pip install 'pp-smoke-run[otel]'")
    except PpError as error:
        failed.append(error.what)
    except Exception as error:  # of a library, about a collector: nothing of the run
        failed.append(f"{type(error).__name__}: {error}")


def _export(directory: Path) -> None:
    exporters = import_module("opentelemetry.exporter.otlp.proto.http.trace_exporter")
    results = import_module("opentelemetry.sdk.trace.export").SpanExportResult
    # Its own lines about what failed would come on top of ours, with tracebacks.
    library = logging.getLogger("opentelemetry")
    library.propagate = False
    library.addHandler(logging.NullHandler())
    story = read_story(directory)
    if story.began_unix_s is None or not story.run_id:
        raise PpError("the run's files do not say when it began")
    make = _maker(story.run_id, story.began_unix_s)
    spans = [make(span) for span in run_spans(story, analyse(story))]
    exporter = exporters.OTLPSpanExporter(timeout=EXPORT_S)
    try:
        for first in range(0, len(spans), _BATCH):
            if exporter.export(spans[first : first + _BATCH]) is not results.SUCCESS:
                raise PpError("the collector refused them or does not answer")
    finally:
        exporter.shutdown()


def _maker(run_id: str, began_unix_s: float) -> Callable[[Span], Any]:
    """Turns our spans into the library's. The trace's id is the run's."""
    api = import_module("opentelemetry.trace")
    sdk = import_module("opentelemetry.sdk.trace")
    resources = import_module("opentelemetry.sdk.resources")
    scope = import_module("opentelemetry.sdk.util.instrumentation").InstrumentationScope("pp-smoke-run", __version__)
    # The user's OTEL_SERVICE_NAME and OTEL_RESOURCE_ATTRIBUTES win over our own.
    named = resources.OTELResourceDetector().detect()
    resource = resources.Resource({"service.name": "pp-smoke-run", "service.version": __version__}).merge(named)
    flags = api.TraceFlags(api.TraceFlags.SAMPLED)

    def context(span_id: int) -> Any:
        return api.SpanContext(int(run_id, 16), span_id, is_remote=False, trace_flags=flags)

    def make(span: Span) -> Any:
        status = api.Status(api.StatusCode.ERROR, span.failure) if span.failure is not None else api.Status()
        return sdk.ReadableSpan(
            span.name,
            context=context(span.id),
            parent=context(span.parent) if span.parent is not None else None,
            resource=resource,
            attributes=span.attributes,
            status=status,
            start_time=round((began_unix_s + span.begin) * 1e9),
            end_time=round((began_unix_s + max(span.begin, span.end)) * 1e9),
            instrumentation_scope=scope,
        )

    return make
