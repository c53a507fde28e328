"""A run's spans as those of the OpenTelemetry library, and on their way; it needs the extra `pp-smoke-run[otel]`."""

from __future__ import annotations

import logging
from collections.abc import Callable
from importlib import import_module
from pathlib import Path
from typing import Any

from ppsmoke import __version__
from ppsmoke.errors import PpError
from ppsmoke.report.analysis import analyse
from ppsmoke.report.source import read_story
from ppsmoke.report.spans import Span, run_spans

_BATCH = 1000


def send_spans(directory: Path, collector: str, *, timeout_s: float) -> None:
    """Send those of the run whose bundle this is to where the standard variables point; `timeout_s` a request.

    `collector`: who that is, for errors.

    Raises ImportError without the extra, PpError where they cannot be made or are not taken.
    """
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
    # The exporter says no more than that it failed.
    statuses: list[int] = []
    session = import_module("requests").Session()
    session.hooks["response"].append(lambda response, **_: statuses.append(response.status_code))
    exporter = exporters.OTLPSpanExporter(timeout=timeout_s, session=session)
    try:
        for first in range(0, len(spans), _BATCH):
            if exporter.export(spans[first : first + _BATCH]) is not results.SUCCESS:
                if statuses:
                    raise PpError(f"{collector} refused them with status {statuses[-1]}")
                raise PpError(f"{collector} does not answer")
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
