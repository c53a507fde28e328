"""The files of a run's directory; what is in them says the package's docstring."""

from __future__ import annotations

FORMAT = 1

ENVIRONMENT = "environment.json"
PLAN = "plan.json"
EVENTS = "events.jsonl"
SPANS = "spans.jsonl"
OFFERS = "offers.json"
RENTAL = "rental.json"
CALLS = "vast-calls.log"
SERVICE = "vast-service.json"
RUN = "run.json"
TRACE = "trace.json"
STAGE_LOG = "stage-{}.log"
INSTANCE_LOG = "instance-{}.log"
