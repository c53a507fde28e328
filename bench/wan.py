"""Measure the chain over long ways: a lab of network namespaces whose hosts are 0 to 200 ms and 100 Mbit/s apart.

    python -m bench.wan [--quick] [--llama-rpc DIR] [--json FILE]

Needs root, iproute2 and nftables; see docs/lab.md. All hosts share this machine's cores. With the
programs of llama.cpp in DIR its RPC goes the same ways. One run a case; JSON on stdout or in FILE, the table on stderr:
"least" is what the ways and the stages' own computing take together, "to first text" counts from the command, with all
that it starts. All cases take a quarter of an hour.
"""

from __future__ import annotations

import argparse
import json
import socket
import sys
import tempfile
import time
from contextlib import ExitStack
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from bench.arguments import numbers
from bench.llama_rpc import LlamaPrograms, find_programs, parse_completion
from bench.machine_state import describe_machine
from bench.process import run, session
from bench.prompts import PromptMaker
from bench.samples import NotMeasured
from bench.wan_figures import DIRECT, LLAMA_RPC, RELAYED, WanCase, WanResult, limits, wan_table
from ppsmoke.errors import Interrupted
from ppsmoke.models import DEFAULT_MODEL, find_model, parse_model
from ppsmoke.signals import raise_on_signals
from tests.netlab.iroh_relay import NotBuilt, relay_program
from tests.netlab.lab import Host, Lab
from tests.netlab.link_model import LinkSettings
from tests.netlab.namespaces import NoLab
from tests.netlab.nat import Nat
from tests.netlab.plain import plain_command, plain_environment
from tests.netlab.relays import OURS, REAL
from tests.netlab.town import town

RATE_BIT_S = 100e6
PROMPT_TOKENS = 64
_PART = 32  # prompt tokens that travel together
_FLOAT_BYTES = 4
_PORT = 50052
_LISTENING_S = 20.0
_ROUND_TRIPS = (0, 20, 50, 100, 200)


@dataclass(frozen=True, slots=True)
class Wan:
    """What is measured. Round trips in seconds; `tokens` of a run; `deadline_s` of each."""

    stages: tuple[int, ...]
    round_trips: tuple[float, ...]
    tokens: int
    relay: str
    model: Path
    deadline_s: float = 300.0

    @property
    def _prompt(self) -> str:
        return PromptMaker(str(self.model)).of_length(PROMPT_TOKENS)

    def chain(self, case: WanCase) -> WanResult:
        """One run of ours. Raises NotMeasured."""
        nat = Nat.SYMMETRIC if case.way == RELAYED else None
        with town(case.stages, relay=self.relay, nat=nat, link=_link(case)) as place:
            asked = (
                "--model",
                DEFAULT_MODEL,
                "--raw",
                "--prompt",
                self._prompt,
                "--max-tokens",
                str(self.tokens),
            )
            command = plain_command(place, *asked, "--json", "--debug")
            with tempfile.TemporaryDirectory(prefix="pp-bench-") as state:
                env = {**plain_environment(place), "XDG_STATE_HOME": state}
                done = run(command, deadline_s=self.deadline_s, env=env)
        return chain_result(case, json.loads(done.stdout), PromptMaker(str(self.model)).hidden_dim * _FLOAT_BYTES)

    def llama(self, case: WanCase, programs: LlamaPrograms) -> WanResult:
        """One run of llama.cpp with an RPC server on each host. Raises NotMeasured."""
        link = _link(case)
        with Lab() as lab, ExitStack() as stack:
            caller = lab.host("caller", link=link)
            hosts = [lab.host(f"stage-{i}", link=link) for i in range(case.stages)]
            for host in hosts:
                server = host.command(str(programs.server), "-H", host.address, "-p", str(_PORT), "-t", "1")
                stack.enter_context(session(server))
            for host in hosts:
                _wait_listening(host)
            servers = ",".join(f"{host.public_address}:{_PORT}" for host in hosts)
            command = caller.command(
                *(str(programs.completion), "-m", str(self.model), "-t", "1", "-c", "2048", "-no-cnv", "--temp", "0"),
                *(
                    "--ignore-eos",
                    "--no-display-prompt",
                    "--no-warmup",
                    "-n",
                    str(self.tokens),
                    "-p",
                    self._prompt,
                ),
                *("-ngl", "99", "--rpc", servers),
            )
            done = run(command, deadline_s=self.deadline_s)
        figures = parse_completion(done.stderr)
        token_s = figures.get("decode_mean_ms", 0.0) / 1e3 or None
        return WanResult(case, token_s, figures["first_token_s"], done.first_byte_s, more=figures)


def chain_result(case: WanCase, body: dict[str, Any], hidden_bytes: int) -> WanResult:
    """From the object that `--json` printed. `hidden_bytes`: of one token's activation."""
    timings, tokens = body["timings"], body["prompt_tokens"]
    stages = timings["stages"]
    parts = -(-tokens // _PART)
    prefills = [stage["prefill_s"] or 0.0 for stage in stages]
    # Part follows part: all stages for the first one, then the slowest sets the pace.
    prefill_s = sum(prefills) / parts + max(prefills) * (parts - 1) / parts
    least = limits(
        case,
        step_s=sum(stage["compute_p50_s"] or 0.0 for stage in stages),
        prefill_s=prefill_s,
        activation_bytes=tokens * hidden_bytes,
        rate_bit_s=RATE_BIT_S,
        parts=parts,
    )
    starts = [timings[name] or 0.0 for name in ("model_s", "spawn_s", "join_s", "ready_s")]
    token_s = 1 / body["decode_tok_s"] if body["decode_tok_s"] else None
    more = {
        "p50_s": timings["decode_p50_s"],
        "hop_parts": timings.get("hop_parts"),
        "prompt_tokens": tokens,
        "paths": sorted({edge["path"] for edge in body["edges"]}),
    }
    return WanResult(case, token_s, body["ttft_s"], sum(starts) + (body["ttft_s"] or 0.0), least, more=more)


def measure(wan: Wan, programs: LlamaPrograms | None) -> list[WanResult]:
    """All cases, each told on stderr as it comes."""
    results = []
    for round_trip_s in wan.round_trips:
        for stages in wan.stages:
            for way in (DIRECT, RELAYED, *([LLAMA_RPC] if programs else [])):
                case = WanCase(stages, round_trip_s, way)
                try:
                    measured = wan.llama(case, programs) if programs and way == LLAMA_RPC else wan.chain(case)
                except NotMeasured as failure:
                    measured = WanResult(case, error=str(failure))
                results.append(measured)
                print("  ".join(wan_table([measured])[-1].split()), file=sys.stderr, flush=True)
    return results


def main() -> None:
    options = _parser().parse_args()
    raise_on_signals()  # so that hosts and programs are ended
    model = find_model(parse_model(DEFAULT_MODEL))
    if model is None:
        sys.exit(f"{DEFAULT_MODEL} is not in the cache; fetch it with pp-smoke-run models fetch {DEFAULT_MODEL}")
    try:
        programs = find_programs(options.llama_rpc) if options.llama_rpc else None
        relay = _relay()
        round_trips = tuple(ms / 1000 for ms in options.round_trips or ((0, 100) if options.quick else _ROUND_TRIPS))
        stages = options.stages or ((2, 5) if options.quick else (2, 3, 5))
        wan = Wan(stages, round_trips, options.tokens or (17 if options.quick else 33), relay, model)
        results = measure(wan, programs)
    except (FileNotFoundError, NoLab) as error:
        sys.exit(str(error))
    except Interrupted as error:
        print(error, file=sys.stderr)
        sys.exit(error.exit_status)
    body = {
        "machine": describe_machine(),
        "relay": relay,
        "rate_bit_s": RATE_BIT_S,
        "tokens": wan.tokens,
        "results": [result.as_json() for result in results],
    }
    text = json.dumps(body, indent=1)
    if options.json is None:
        print(text)
    else:
        options.json.write_text(text + "\n")
    print("\n".join(wan_table(results)), file=sys.stderr)


def _relay() -> str:
    try:
        relay_program()
    except NotBuilt as reason:
        print(f"{reason}; a relay in Python stands in for it", file=sys.stderr)
        return OURS
    return REAL


def _link(case: WanCase) -> LinkSettings:
    """Of every host: two of them, and a relay in the middle, make the whole way."""
    return LinkSettings(delay_s=case.round_trip_s / 4, rate_bit_s=RATE_BIT_S)


def _wait_listening(host: Host) -> None:
    """Asked on the host itself: to try from elsewhere would be a session of the server."""
    ends = time.monotonic() + _LISTENING_S
    while True:
        with host.inside(), socket.socket() as asking:
            if asking.connect_ex((host.address, _PORT)) == 0:
                return
        if time.monotonic() > ends:
            raise NotMeasured(f"the RPC server of {host.name} did not listen within {_LISTENING_S:g} s")
        time.sleep(0.02)


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(
        prog="python -m bench.wan", description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--quick", action="store_true", help="two minutes: 0 and 100 ms, N = 2 and 5, fewer tokens")
    parser.add_argument("--llama-rpc", type=Path, metavar="DIR", help="compare with llama.cpp's programs in DIR")
    parser.add_argument("--json", type=Path, metavar="FILE", help="write the JSON there instead of on stdout")
    parser.add_argument("--stages", type=numbers, metavar="N,N", help="default: 2,3,5")
    parser.add_argument("--round-trips", type=numbers, metavar="MS,MS", help="default: 0,20,50,100,200")
    parser.add_argument("--tokens", type=int, metavar="N", help="of each run; default: 33")
    return parser


if __name__ == "__main__":
    main()
