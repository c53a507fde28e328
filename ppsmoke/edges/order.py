"""The order of objects on one edge. Pure.

After (sequence, part) comes (sequence, part + 1), or (sequence + 1, 0) when the part was the last of its sequence. A
request starts at (0, 0); a new one may start only where the one before stands between two sequences, and a request
that is done has no further objects.
"""

from __future__ import annotations

from ppsmoke.objects import StreamObject


class ObjectOrder:
    def __init__(self) -> None:
        self._request: str | None = None
        self._next = (0, 0)
        self._done = False

    def problem(self, obj: StreamObject) -> str | None:
        """Why `obj` may not come now; None when it may, and then it counts as come."""
        at = (obj.sequence, obj.part)
        if obj.request_id != self._request:
            if self._next[1] != 0:
                return f"{obj.describe()} came in the middle of a sequence of request {str(self._request)[:8]}"
            if at != (0, 0):
                return f"{obj.describe()} came where a new request must start with sequence 0"
        elif self._done:
            return f"{obj.describe()} came after that request was done"
        elif at != self._next:
            return (
                f"{obj.describe()} (part {obj.part}) came where sequence {self._next[0]} part {self._next[1]} was due"
            )
        if obj.done and not obj.last_part:
            return f"{obj.describe()} ends the request without being the last part"
        self._request = obj.request_id
        self._next = (obj.sequence + 1, 0) if obj.last_part else (obj.sequence, obj.part + 1)
        self._done = obj.done
        return None
