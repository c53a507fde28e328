"""Which requests are open and which position each goes on at: the rules of the KV cache, apart from any engine."""

from __future__ import annotations

from ppsmoke.errors import ContextExceeded, OutOfOrder, RequestRejected, UnknownRequest

DEFAULT_MAX_REQUESTS = 8


class RequestBook:
    def __init__(self, context: int, max_requests: int = DEFAULT_MAX_REQUESTS) -> None:
        self.context = context
        self.max_requests = max_requests
        self._next_position: dict[str, int] = {}

    def check(self, request_id: str, position: int, seq_len: int) -> None:
        """May this step run? Raises UnknownRequest, OutOfOrder, ContextExceeded or RequestRejected; changes nothing."""
        expected = self._next_position.get(request_id)
        if expected is None and position != 0:
            raise UnknownRequest(f"request {request_id!r} is not open, so it cannot go on at position {position}")
        if expected is not None and position != expected:
            raise OutOfOrder(
                f"request {request_id!r} goes on at position {expected}, not {position}",
                remedy="reset the request to begin it again",
            )
        if position + seq_len > self.context:
            raise ContextExceeded(
                f"{seq_len} tokens at position {position} do not fit into a context of {self.context}",
                remedy="shorten the prompt, lower --max-tokens or raise --context",
            )
        if expected is None and len(self._next_position) >= self.max_requests:
            raise RequestRejected(
                f"{self.max_requests} requests are open, which is the limit", remedy="reset one that is done"
            )

    def advance(self, request_id: str, position: int, seq_len: int) -> None:
        self._next_position[request_id] = position + seq_len

    def forget(self, request_id: str | None) -> None:
        if request_id is None:
            self._next_position.clear()
        else:
            self._next_position.pop(request_id, None)
