"""A program that a node starts for one request: a line of JSON comes in, lines of JSON go out. It ends with its input.

The node's side of it is stage.helper_process.
"""

from __future__ import annotations

import json
import os
import sys
import threading
from collections.abc import Callable, Mapping
from contextlib import suppress
from typing import Any, NoReturn

from ppsmoke.errors import UsageError


def read_request() -> Any:
    """What is asked for. From now on this process ends as soon as its input does, in the middle of whatever it does."""
    request = json.loads(sys.stdin.readline())
    threading.Thread(target=_end_with_input, daemon=True).start()
    return request


def write_line(body: Mapping[str, Any]) -> None:
    """Raises BrokenPipeError when nobody reads any more."""
    print(json.dumps(body), flush=True)


def run_program(main: Callable[[], int]) -> NoReturn:
    """End this process with the exit status of `main`; no thread is waited for."""
    try:
        status = main()
    except BrokenPipeError:
        status = 1
    except UsageError as error:
        print(error, file=sys.stderr)
        status = error.exit_status
    os._exit(status)


def _end_with_input() -> None:
    with suppress(OSError):
        while os.read(0, 4096):
            pass
    os._exit(1)
