"""Which of very many lines of one kind are kept, so that the files of a run that is held for days stay small. Pure."""

from __future__ import annotations

import zlib

WINDOW = 64
"""So many lines of one request that follow each other are kept or left out together: times between them stay known."""


class Thinning:
    """Keeps all of the first `most` lines; then every second window, then every fourth and so on, each until `most`
    more lines were kept. So 1,000 times as many lines make a file that is 11 times as long.

    left_out: how many lines were. The choice is made by request and number alone, so that all stages keep the same
    steps of a token.
    """

    def __init__(self, most: int) -> None:
        self.left_out = 0
        self._most = most
        self._kept = 0
        self._stride = 1

    def keeps(self, request_id: str, number: int) -> bool:
        """Whether to write the line of this number (of a token, of a step) in its request."""
        if self._stride > 1 and (zlib.crc32(request_id.encode()) + number // WINDOW) % self._stride:
            self.left_out += 1
            return False
        self._kept += 1
        if self._kept % self._most == 0:
            self._stride *= 2
        return True
