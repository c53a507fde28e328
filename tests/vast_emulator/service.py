"""The calls of the API, over the account and the market: one request in, one reaction out. Knows nothing of sockets."""

from __future__ import annotations

import base64
import json
import secrets
import threading
from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from itertools import cycle
from typing import Any

from tests.vast_emulator.account import Account, Rental
from tests.vast_emulator.answers import Answer, json_answer, text_answer
from tests.vast_emulator.clock import ServiceClock
from tests.vast_emulator.faults import FAULTS, Fault, FaultPlan
from tests.vast_emulator.limits import RateLimits
from tests.vast_emulator.query import BadQuery, search, select

_MOST_ROWS = 25
_UPLOAD_S = 1.0
_NO_KEY = FAULTS["bad_key_404"].answer
_DENIED = '<?xml version="1.0"?><Error><Code>AccessDenied</Code><Message>Access Denied</Message></Error>'


@dataclass(frozen=True, slots=True)
class Request:
    method: str
    path: str
    query: Mapping[str, str]
    key: str | None
    body: bytes

    def json(self) -> dict[str, Any]:
        """The body's object; empty for anything else."""
        try:
            body = json.loads(self.body or b"{}")
        except ValueError:
            return {}
        return body if isinstance(body, dict) else {}


@dataclass(frozen=True, slots=True)
class Reaction:
    """Without an answer the connection is held until the client gives up, or dropped at once."""

    answer: Answer | None
    drop: bool = False


@dataclass(frozen=True, slots=True)
class Heard:
    """One call in the record that tests read: its kind, its number among those of the kind, and when it came."""

    call: str
    number: int
    moment: float
    key_shown: bool


class Service:
    """`on_call` hears of each call before it is handled, with its kind and number, in the thread that serves it."""

    def __init__(
        self,
        *,
        clock: ServiceClock,
        key: str,
        offers: list[dict[str, Any]],
        account: Account,
        faults: FaultPlan | None = None,
        limits: RateLimits | None = None,
        credit: float = 25.0,
    ) -> None:
        self.clock = clock
        self.key = key
        self.offers = offers
        self.account = account
        self.faults = faults or FaultPlan()
        self.limits = limits or RateLimits()
        self.credit = credit
        self.base_url = ""
        self.on_call: Callable[[str, int], None] = lambda call, number: None
        self.heard: list[Heard] = []
        self.broken: list[Exception] = []  # faults of the emulator itself
        self._lock = threading.RLock()
        self._late: list[tuple[float, Callable[[float], object]]] = []
        self._logs: dict[str, tuple[float, str]] = {}
        self._refusals = cycle(("429_text", "429_short", "429_detail", "429_json"))
        self._gone_forms = cycle(("offer_gone_404", "offer_gone_410", "offer_gone_400", "offer_gone_200"))

    def react(self, request: Request) -> Reaction:
        """What the service does about one request."""
        call = _call_of(request)
        with self._lock:
            number = self.faults.counts[call] + 1
            self.on_call(call, number)
            now = self._advance()
            self.heard.append(Heard(call, number, now, request.key == self.key))
            fault = self.faults.next(call)
            if (refusal := self._key_refusal(call, request)) is not None:
                return Reaction(refusal)
            if fault is not None:
                return self._fail(fault, call, request, now)
            if call != "unknown" and self.limits.refuse_s(call, request.key or "", now) is not None:
                return Reaction(FAULTS[next(self._refusals)].answer)
            return Reaction(self._answer(call, request, now))

    def put_off(self, delay_s: float, effect: Callable[[float], object]) -> None:
        """Let something happen so much later; `effect` gets the moment."""
        with self._lock:
            due = self._advance() + delay_s
            self._late.append((due, effect))

    def settle(self) -> float:
        """Let everything that is due take effect; the moment it was due until."""
        with self._lock:
            return self._advance()

    def wait_for_late_effects(self) -> float:
        """As `settle`, with what has been put off taken as done when it was due."""
        with self._lock:
            for due, effect in self._late:
                effect(due)
            self._late.clear()
            return self._advance()

    # ---- one call

    def _fail(self, fault: Fault, call: str, request: Request, now: float) -> Reaction:
        answer = fault.answer
        if fault.effect and fault.late_s:
            self.put_off(fault.late_s, lambda moment: self._answer(call, request, moment))
        elif fault.effect:
            real = self._answer(call, request, now)
            made = json.loads(real.body or b"{}").get("new_contract") if call == "create" else None
            if fault.names_instance and answer is not None and made is not None:
                answer = json_answer({**json.loads(answer.body), "new_contract": made}, answer.status)
            if fault.odd_listing:
                return Reaction(_odd_listing(fault.odd_listing, real))
        return Reaction(answer, fault.drop)

    def _answer(self, call: str, request: Request, now: float) -> Answer:
        match call:
            case "search":
                return self._search(request)
            case "create":
                return self._create(request, now)
            case "list":
                return self._list(request, now)
            case "show":
                return self._show(request, now)
            case "destroy":
                return self._destroy(request, now)
            case "change":
                return self._change(request)
            case "logs":
                return self._request_logs(request, now)
            case "log_file":
                return self._log_file(request, now)
            case "account":
                return json_answer({"id": 123456, "email": "dev@example.org", "credit": self.credit, "balance": 0.0})
            case "old_list":
                return FAULTS["deprecated"].answer or text_answer("")
            case _:
                return text_answer("<html><body><h1>404 Not Found</h1></body></html>", 404, "text/html")

    def _search(self, request: Request) -> Answer:
        taken = self.account.taken_machines()
        market = [offer for offer in self.offers if offer["machine_id"] not in taken]
        try:
            return json_answer({"offers": search(market, request.json())})
        except BadQuery as error:
            return json_answer({"error": "invalid_request", "msg": str(error)}, 400)

    def _create(self, request: Request, now: float) -> Answer:
        offer = next((x for x in self.offers if x["id"] == _number_in(request.path)), None)
        if offer is None or offer["machine_id"] in self.account.taken_machines():
            return FAULTS[next(self._gone_forms)].answer or text_answer("")
        wish = request.json()
        script = str(wish.get("onstart") or "") + "".join(str(x) for x in wish.get("args") or ())
        if not wish.get("image") or len(script) > 4096 or not isinstance(wish.get("env"), dict):
            return FAULTS["bad_request"].answer or text_answer("")
        rental = self.account.rent(offer, wish, self.faults.next_fate(), now)
        return json_answer({"success": True, "new_contract": rental.instance_id, "instance_api_key": rental.key})

    def _list(self, request: Request, now: float) -> Answer:
        limit = int(request.query.get("limit") or _MOST_ROWS)
        limit = 5 if limit <= 0 else min(limit, _MOST_ROWS)
        try:
            rows = select(self.account.rows(now), json.loads(request.query.get("select_filters") or "{}"))
        except (BadQuery, ValueError) as error:
            return json_answer({"error": "invalid_request", "msg": str(error)}, 400)
        after = request.query.get("after_token")
        if after is not None:
            last_id = _id_in_token(after)
            if last_id is None:
                return json_answer({"error": "invalid_token", "msg": "Invalid after_token"}, 400)
            page = [row for row in rows if row["id"] > last_id]
        else:
            page = list(rows)
        more, page = len(page) > limit, page[:limit]
        labels = [row["label"] or "" for row in rows]
        return json_answer(
            {
                "success": True,
                "instances_found": len(page),
                "total_instances": len(rows),
                "label_counts": {label: labels.count(label) for label in sorted(set(labels))},
                "next_token": _token(page[-1]["id"]) if more else None,
                "instances": page,
            }
        )

    def _show(self, request: Request, now: float) -> Answer:
        rental = self._rental(request)
        shown = rental is not None and rental.shown_from <= now < rental.shown_until
        return json_answer({"instances": self.account.row(rental, now) if shown and rental is not None else None})

    def _destroy(self, request: Request, now: float) -> Answer:
        number = _number_in(request.path)
        if self.account.destroy(number, now):
            return json_answer({"success": True, "msg": "Instance destroyed successfully"})
        return json_answer({"success": False, "error": "no_such_instance", "msg": f"Instance {number} not found."}, 404)

    def _change(self, request: Request) -> Answer:
        rental = self._rental(request)
        if rental is None or rental.died is not None:
            return json_answer({"success": False, "error": "no_such_instance", "msg": "Instance not found."}, 404)
        if "label" in request.json():
            rental.label = str(request.json()["label"])
        return json_answer({"success": True})

    def _request_logs(self, request: Request, now: float) -> Answer:
        rental = self._rental(request)
        if rental is None or rental.died is not None:
            return json_answer({"error": "invalid_id", "msg": "Invalid instance id."}, 404)
        daemon = request.json().get("daemon_logs") == "true"
        text = "daemon: nothing to report\n" if daemon else self.account.output(rental)
        name = secrets.token_hex(8)
        self._logs[name] = (now + _UPLOAD_S, text)
        return json_answer({"success": True, "result_url": f"{self.base_url}/uploads/{name}.log", "msg": ""})

    def _log_file(self, request: Request, now: float) -> Answer:
        ready, text = self._logs.get(request.path.rpartition("/")[2].removesuffix(".log"), (float("inf"), ""))
        if now < ready:
            return text_answer(_DENIED, 403, "application/xml")
        return text_answer(text, 200, "binary/octet-stream")

    # ---- small things

    def _key_refusal(self, call: str, request: Request) -> Answer | None:
        if call in ("log_file", "unknown") or (call == "search" and request.key is None):
            return None
        if request.key == self.key:
            return None
        rental = self._rental(request) if call in ("destroy", "change", "show") else None
        return None if rental is not None and request.key == rental.key else _NO_KEY

    def _rental(self, request: Request) -> Rental | None:
        return self.account.rentals.get(_number_in(request.path))

    def _advance(self) -> float:
        now = self.clock.now()
        due = [(moment, effect) for moment, effect in self._late if moment <= now]
        self._late = [(moment, effect) for moment, effect in self._late if moment > now]
        for moment, effect in due:
            effect(moment)
        self.account.age(now)
        return now


def _call_of(request: Request) -> str:
    parts = [part for part in request.path.split("/") if part]
    match request.method, parts:
        case "POST", ["api", "v0", "bundles"]:
            return "search"
        case "PUT", ["api", "v0", "asks", _]:
            return "create"
        case "GET", ["api", "v1", "instances"]:
            return "list"
        case "GET", ["api", "v0", "instances"]:
            return "old_list"
        case "GET", ["api", "v0", "instances", _]:
            return "show"
        case "DELETE", ["api", "v0", "instances", _]:
            return "destroy"
        case "PUT", ["api", "v0", "instances", "request_logs", _]:
            return "logs"
        case "PUT", ["api", "v0", "instances", _]:
            return "change"
        case "GET", ["api", "v0", "users", "current"]:
            return "account"
        case "GET", ["uploads", _]:
            return "log_file"
        case _:
            return "unknown"


def _number_in(path: str) -> int:
    last = [part for part in path.split("/") if part][-1]
    return int(last) if last.isdigit() else -1


def _token(last_id: int) -> str:
    return base64.b64encode(json.dumps({"values": {"id": last_id}}).encode()).decode()


def _id_in_token(token: str) -> int | None:
    try:
        return int(json.loads(base64.b64decode(token, validate=True))["values"]["id"])
    except (ValueError, KeyError, TypeError):
        return None


def _odd_listing(how: str, real: Answer) -> Answer:
    """A page that looks like an answer and proves nothing."""
    page = json.loads(real.body)
    if "instances" not in page:
        return real
    if how == "short_page":
        page |= {"instances": page["instances"][:-1], "total_instances": max(1, page["total_instances"])}
    elif how == "no_total":
        del page["total_instances"]
    else:
        page |= {"next_token": _token(0)}
    return replace(real, body=json.dumps(page).encode())
