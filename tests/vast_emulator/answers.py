"""An HTTP answer, and the pages that gateways give instead of one."""

from __future__ import annotations

import json
from dataclasses import dataclass, field
from typing import Any

GATEWAY_PAGE = "<html><head><title>502 Bad Gateway</title></head><body><h1>502 Bad Gateway</h1></body></html>"
WEB_APP = '<!doctype html><html><head><title>Vast.ai</title></head><body><div id="root"></div></body></html>'


@dataclass(frozen=True, slots=True)
class Answer:
    status: int
    content_type: str
    body: bytes
    headers: dict[str, str] = field(default_factory=dict)


def json_answer(body: Any, status: int = 200, **headers: str) -> Answer:
    named = {name.replace("_", "-"): value for name, value in headers.items()}
    return Answer(status, "application/json", json.dumps(body).encode(), named)


def text_answer(text: str, status: int = 200, content_type: str = "text/plain; charset=utf-8") -> Answer:
    return Answer(status, content_type, text.encode())
