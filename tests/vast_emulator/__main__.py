"""`python -m tests.vast_emulator`: see README.md beside this file."""

from __future__ import annotations

import argparse
import random
import shlex
import signal
import sys
import threading

from tests.vast_emulator.account import Account
from tests.vast_emulator.clock import ServiceClock
from tests.vast_emulator.fates import FATES
from tests.vast_emulator.faults import FAULTS, FaultPlan, parse_faults
from tests.vast_emulator.limits import RateLimits
from tests.vast_emulator.nodes import ProcessNodes
from tests.vast_emulator.rows import make_offers
from tests.vast_emulator.server import serving
from tests.vast_emulator.service import Service


def main() -> int:
    parser = argparse.ArgumentParser(prog="python -m tests.vast_emulator", description=__doc__)
    parser.add_argument("--port", type=int, default=0, help="default: a free one, printed at the start")
    parser.add_argument("--key", default="emulated-key", help="the API key that is accepted")
    parser.add_argument("--offers", type=int, default=40, help="machines on the market")
    parser.add_argument("--seed", type=int, default=0, help="of the market and of --chaos")
    parser.add_argument("--scale", type=float, default=1.0, help="0.01: its time passes a hundred times faster")
    parser.add_argument("--faults", default="", metavar="CALL:WHICH=NAME,...", help="see --list-faults")
    parser.add_argument("--chaos", type=float, default=0.0, metavar="P", help="probability that a call goes wrong")
    parser.add_argument("--latency", type=float, default=0.0, metavar="S", help="real seconds until a call is heard")
    parser.add_argument("--credit", type=float, default=25.0, help="USD of the account")
    parser.add_argument("--real", action="store_true", help="instances run their start script as processes here")
    parser.add_argument("--list-faults", action="store_true", help="print the names and stop")
    options = parser.parse_args()
    if options.list_faults:
        print("faults of calls:", ", ".join(sorted(FAULTS)))
        print("fates of hosts: ", ", ".join(sorted(FATES)))
        return 0
    try:
        rules = parse_faults(options.faults)
    except ValueError as error:
        parser.error(str(error))
    nodes = ProcessNodes() if options.real else None
    clock = ServiceClock(options.scale)
    service = Service(
        clock=clock,
        key=options.key,
        offers=make_offers(options.offers, options.seed),
        account=Account(clock, options.seed, nodes),
        faults=FaultPlan(rules, options.chaos, random.Random(options.seed)),
        limits=RateLimits(),
        credit=options.credit,
    )
    service.on_call = lambda call, number: print(f"{clock.now():8.1f} s  {call} {number}", file=sys.stderr)
    ended = threading.Event()
    for number in (signal.SIGINT, signal.SIGTERM):
        signal.signal(number, lambda *_: ended.set())
    try:
        with serving(service, options.port, options.latency) as server:
            print(f"VAST_URL={server.url}", flush=True)
            print(_how_to_rent(server.url, options), file=sys.stderr)
            ended.wait()
            now = service.settle()
    except OSError as error:
        print(
            f"port {options.port} cannot be had: {error.strerror}; take another one with --port N "
            "(make vast-emulator EMULATOR='--port N')",
            file=sys.stderr,
        )
        return 1
    else:
        if nodes is not None:
            nodes.stop_all()
        return _report(service, now)
    finally:
        if nodes is not None:
            _remove_files(nodes)


def _how_to_rent(url: str, options: argparse.Namespace) -> str:
    """A command that can be pasted into another terminal."""
    scale = f" --time-scale {options.scale:g}" if options.scale != 1 else ""
    model = "$(pp-smoke-run models fetch smollm2:135m)" if options.real else "stub:layers=8"
    return (
        "in another terminal, with the pp-smoke-run of this Python:\n"
        f"  pp-smoke-run --vastai -n 3 --vast-url {url} --api-key {shlex.quote(options.key)}{scale} --model {model}\n"
        "Ctrl-C here ends it and shows the ledger"
    )


def _remove_files(nodes: ProcessNodes) -> None:
    """As `nodes.close()`; a second Ctrl-C ends the waiting and leaves what is there."""
    signal.signal(signal.SIGINT, signal.default_int_handler)
    signal.signal(signal.SIGTERM, signal.SIG_DFL)
    try:
        if any(nodes.root.iterdir()):
            print(f"removing the machines' files; Ctrl-C leaves them in {nodes.root}", file=sys.stderr, flush=True)
        nodes.close()
    except KeyboardInterrupt:
        print(f"left: {nodes.root}", file=sys.stderr)


def _report(service: Service, now: float) -> int:
    """The ledger; 1 when something is alive in it."""
    ledger = service.account.ledger
    for life in ledger.lives:
        print(life.describe())
    for error in service.broken:
        print(f"the emulator itself failed: {error!r}", file=sys.stderr)
    alive = ledger.alive()
    print(f"{len(ledger.lives)} rented, {len(alive)} alive, {ledger.billed(0.0, now):.4f} USD billed", flush=True)
    return 1 if alive or service.broken else 0


if __name__ == "__main__":
    sys.exit(main())
