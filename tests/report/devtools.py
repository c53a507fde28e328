"""A real browser without a window, driven through its debugging pipe: keys in, expressions out, exceptions seen."""

from __future__ import annotations

import base64
import json
import os
import select
import shutil
import signal
import subprocess
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any

import pytest

_NAMES = ("chromium", "chromium-browser", "google-chrome", "google-chrome-stable")
_PATIENCE_S = 120.0
_OPTIONS = (
    "--headless",
    "--no-sandbox",  # in a container the browser may make none
    "--no-zygote",
    "--disable-gpu",
    "--disable-dev-shm-usage",
    "--disable-background-networking",
    "--disable-extensions",
    "--no-first-run",
    "--hide-scrollbars",
    "--remote-debugging-pipe",
)


class Browser:
    """Shows one page at a time. `problems`: what the page's scripts threw or wrote to the console, and what its
    security policy refused, so far."""

    def __init__(self, to_browser: int, from_browser: int) -> None:
        self._to, self._from = to_browser, from_browser
        self._rest = b""
        self._number = 0
        self._session: str | None = None
        self._loaded = False
        self.problems: list[str] = []

    def open(self, address: str) -> None:
        """Returns when the page's scripts have run; the page before is forgotten."""
        self._session, self.problems = None, []
        target = self._call("Target.createTarget", url="about:blank")["targetId"]
        self._session = self._call("Target.attachToTarget", targetId=target, flatten=True)["sessionId"]
        self._call("Runtime.enable")
        self._call("Log.enable")
        self._call("Page.enable")
        self._loaded = False
        self._call("Page.navigate", url=address)
        while not self._loaded:
            self._note(self._receive())

    def value(self, expression: str) -> Any:
        answer = self._call("Runtime.evaluate", expression=expression, returnByValue=True, awaitPromise=True)
        return answer["result"].get("value")

    def press(self, *keys: str) -> None:
        for key in keys:
            text = {"text": key} if len(key) == 1 else {}
            self._call("Input.dispatchKeyEvent", type="keyDown", key=key, **text)
            self._call("Input.dispatchKeyEvent", type="keyUp", key=key)

    def mouse(self, kind: str, x: float, y: float, **more: Any) -> None:
        self._call("Input.dispatchMouseEvent", type=kind, x=x, y=y, **more)

    def size(self, width: int, height: int, *, dark: bool = False) -> None:
        self._call("Emulation.setDeviceMetricsOverride", width=width, height=height, deviceScaleFactor=1, mobile=False)
        scheme = {"name": "prefers-color-scheme", "value": "dark" if dark else "light"}
        self._call("Emulation.setEmulatedMedia", features=[scheme])

    def picture(self) -> bytes:
        """A PNG."""
        return base64.b64decode(self._call("Page.captureScreenshot", format="png")["data"])

    def _call(self, method: str, **params: Any) -> dict[str, Any]:
        self._number += 1
        message: dict[str, Any] = {"id": self._number, "method": method, "params": params}
        if self._session is not None:
            message["sessionId"] = self._session
        data = json.dumps(message).encode() + b"\0"
        while data:
            data = data[os.write(self._to, data) :]
        while True:
            answer = self._receive()
            if answer.get("id") == self._number:
                assert "error" not in answer, answer
                result: dict[str, Any] = answer["result"]
                return result
            self._note(answer)

    def _note(self, event: dict[str, Any]) -> None:
        params = event.get("params", {})
        if event.get("sessionId") != self._session:
            return
        if event.get("method") == "Page.loadEventFired":
            self._loaded = True
        elif event.get("method") == "Runtime.exceptionThrown":
            self.problems.append(json.dumps(params["exceptionDetails"]))
        elif event.get("method") == "Log.entryAdded":
            self.problems.append(params["entry"]["text"])
        elif event.get("method") == "Runtime.consoleAPICalled":
            self.problems.append(json.dumps(params["args"]))

    def _receive(self) -> dict[str, Any]:
        while b"\0" not in self._rest:
            assert select.select([self._from], [], [], _PATIENCE_S)[0], "the browser does not answer"
            piece = os.read(self._from, 1 << 16)
            assert piece, "the browser ended"
            self._rest += piece
        line, _, self._rest = self._rest.partition(b"\0")
        message: dict[str, Any] = json.loads(line)
        return message


@contextmanager
def browser(profile: Path) -> Iterator[Browser]:
    """A browser that ends here; skips the test where none is installed."""
    program = next((path for name in _NAMES if (path := shutil.which(name))), None)
    if program is None:
        pytest.skip("no Chromium here; apt-get install chromium")
    ours_in, theirs_out = os.pipe()
    theirs_in, ours_out = os.pipe()
    # The browser reads its orders from descriptor 3 and answers on 4.
    place = f'exec 3<&{theirs_in} 4>&{theirs_out}; exec "$@"'
    process = subprocess.Popen(
        ["bash", "-c", place, "browser", program, *_OPTIONS, f"--user-data-dir={profile}", "about:blank"],
        pass_fds=(theirs_in, theirs_out),
        stdin=subprocess.DEVNULL,
        stdout=subprocess.DEVNULL,
        stderr=subprocess.DEVNULL,
        start_new_session=True,
    )
    os.close(theirs_in)
    os.close(theirs_out)
    try:
        yield Browser(ours_out, ours_in)
    finally:
        os.close(ours_out)  # the end of its orders ends the browser
        os.close(ours_in)
        with suppress(subprocess.TimeoutExpired):
            process.wait(20)
        with suppress(ProcessLookupError):
            os.killpg(process.pid, signal.SIGKILL)
        process.wait()
