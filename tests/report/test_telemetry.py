"""Spans reach a collector over OTLP, and whatever is wrong with it costs a line and a bounded wait."""

from __future__ import annotations

import importlib
import socket
from collections.abc import Iterator
from pathlib import Path

import pytest

from ppsmoke import telemetry
from ppsmoke.report import otlp
from tests.report.collector import ENDPOINT, Collector, collecting
from tests.report.recipe import RUN_ID, Recipe, make


@pytest.fixture
def collector(monkeypatch: pytest.MonkeyPatch) -> Iterator[Collector]:
    pytest.importorskip("opentelemetry.exporter.otlp.proto.http", reason="the extra otel is not installed")
    for name in ("HTTP_PROXY", "http_proxy", "ALL_PROXY", "all_proxy"):
        monkeypatch.delenv(name, raising=False)
    with collecting() as server:
        monkeypatch.setenv(ENDPOINT, server.address)
        yield server


def exported(directory: Path, environ: dict[str, str], within_s: float = 60.0) -> list[str]:
    """The warnings."""
    warnings: list[str] = []
    telemetry.export_run(directory, environ, warnings.append, within_s=within_s)
    return warnings


def test_a_collector_gets_the_run_its_stages_and_its_steps(collector: Collector, tmp_path: Path) -> None:
    made = make(Recipe(compute={2: 0.006}, zero=3.0))
    assert exported(made.write(tmp_path), {ENDPOINT: collector.address}) == []
    (path, kind, body), *others = collector.got
    assert others == []
    assert (path, kind) == ("/v1/traces", "application/x-protobuf")
    message = importlib.import_module("opentelemetry.proto.collector.trace.v1.trace_service_pb2")
    request = message.ExportTraceServiceRequest.FromString(body)
    (of_resource,) = request.resource_spans
    assert "pp-smoke-run" in [pair.value.string_value for pair in of_resource.resource.attributes]
    spans = [span for scope in of_resource.scope_spans for span in scope.spans]
    assert {span.trace_id.hex() for span in spans} == {RUN_ID}
    by_id = {span.span_id: span for span in spans}
    assert len(by_id) == len(spans)
    (run,) = [span for span in spans if not span.parent_span_id]
    assert run.name == "pp-smoke-run"
    assert run.start_time_unix_nano == pytest.approx(1.8e18 + 3e9, abs=1e3)
    stages = {span.name: span for span in spans if span.parent_span_id == run.span_id}
    assert {f"stage {index}" for index in range(4)} <= stages.keys()
    assert all(span.parent_span_id in by_id for span in spans if span is not run)
    steps = [span for span in spans if span.name == "decode step"]
    assert len(steps) == 4 * 11
    slow = [span for span in steps if span.parent_span_id == stages["stage 2"].span_id]
    seconds = {pair.key: pair.value.double_value for pair in slow[0].attributes}
    assert seconds["pp.compute_s"] == pytest.approx(0.006)


def test_without_the_variable_nothing_is_loaded_or_sent(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(telemetry, "import_module", None)
    assert exported(tmp_path, {}) == []
    assert exported(tmp_path, {ENDPOINT: "http://127.0.0.1:1", "OTEL_SDK_DISABLED": "true"}) == []


def test_a_collector_that_refuses_costs_one_line(collector: Collector, tmp_path: Path) -> None:
    collector.status = 400
    (warning,) = exported(make(Recipe()).write(tmp_path), {ENDPOINT: collector.address})
    where = f"127.0.0.1:{collector.server_port}"
    assert warning == f"spans were not exported: the collector at {where} refused them with status 400"


def test_a_collector_that_is_not_there_is_named_without_its_credentials(
    collector: Collector, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    with socket.socket() as taken:  # bound, and nobody listens
        taken.bind(("127.0.0.1", 0))
        where = f"127.0.0.1:{taken.getsockname()[1]}"
        address = f"http://somebody:hush@{where}/p?key=hush"
        monkeypatch.setenv(ENDPOINT, address)
        (warning,) = exported(make(Recipe()).write(tmp_path), {ENDPOINT: address})
    assert warning == f"spans were not exported: the collector at {where} does not answer"


@pytest.mark.parametrize(
    ("address", "where"),
    [
        ("http://somebody:hush@host.example:4318/p?key=hush", "at host.example:4318"),
        ("https://hush@host.example", "at host.example:443"),
        ("http://host.example:hush", "whose address is none"),
        ("hush", "whose address is none"),
    ],
)
def test_what_a_library_says_of_a_failure_is_not_shown(
    address: str, where: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def fail(*_: object, **__: object) -> None:
        raise ValueError(f"{address} is wrong")

    monkeypatch.setattr(otlp, "send_spans", fail)
    (warning,) = exported(tmp_path, {ENDPOINT: address})
    assert "ValueError" in warning
    assert where in warning
    assert "hush" not in warning


def test_a_collector_that_hangs_is_given_up(collector: Collector, tmp_path: Path) -> None:
    collector.free.clear()
    (warning,) = exported(make(Recipe()).write(tmp_path), {ENDPOINT: collector.address}, within_s=0.5)
    where = f"127.0.0.1:{collector.server_port}"
    assert warning == f"spans were not exported: the collector at {where} gave no answer within 0.5 s"


def test_the_missing_extra_is_named(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def missing(name: str, *_: object) -> None:
        raise ModuleNotFoundError(name)

    monkeypatch.setattr(otlp, "import_module", missing)
    (warning,) = exported(make(Recipe()).write(tmp_path), {ENDPOINT: "http://127.0.0.1:1"})
    assert warning == "spans were not exported: the libraries are missing; pip install 'pp-smoke-run[otel]'"


def test_another_protocol_is_refused_in_words(tmp_path: Path) -> None:
    environ = {ENDPOINT: "http://127.0.0.1:1", "OTEL_EXPORTER_OTLP_PROTOCOL": "grpc"}
    assert exported(tmp_path, environ) == ["spans were not exported: grpc is not spoken here, only http/protobuf"]


def test_a_run_that_does_not_say_when_it_began(collector: Collector, tmp_path: Path) -> None:
    directory = make(Recipe()).write(tmp_path)
    (directory / "environment.json").unlink()
    (warning,) = exported(directory, {ENDPOINT: collector.address})
    assert warning == "spans were not exported: the run's files do not say when it began"
    assert collector.got == []
