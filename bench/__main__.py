"""Measure the chain on this machine: one JSON object on stdout or in a file, and tables on stderr.

    python -m bench [--quick] [--llama-rpc DIR] [--json FILE] [--model MODEL | --shape llama3.2-1b]

Rounds are interleaved: each has every case once, so that a busy moment of the machine touches all of them, and ratios
to llama.cpp are taken pair by pair. Leave the machine alone meanwhile: the report says how much others used it.
"""

from __future__ import annotations

import argparse
import json
import sys
import tempfile
import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import asdict, replace
from pathlib import Path
from typing import Any

from bench.arguments import numbers
from bench.goals import judge
from bench.llama_rpc import LlamaPrograms, find_programs
from bench.machine_state import Quiet, describe_machine, load_average
from bench.samples import NotMeasured, Sample, Samples
from bench.schedule import PARTS, Scale, Schedule
from bench.table import describe
from fixtures.shaped_gguf import SHAPES, write_shaped_gguf
from ppsmoke.errors import PpError
from ppsmoke.models import DEFAULT_MODEL, find_model, parse_model
from ppsmoke.signals import raise_on_signals
from ppsmoke.stub_model import is_stub_model
from ppsmoke.wording import describe_error

QUICK = Scale(
    stages=(1, 2, 5), threads=(1,), chain_threads=(0,), tokens=33, prompts=(512,), micro_batches=(64,), rounds=1
)
# A model this size takes a tenth of a second a token: less of everything, in a context that fits beside others.
HEAVY = Scale(
    stages=(1, 2, 5), chain_threads=(0,), tokens=17, prompts=(32, 512), micro_batches=(64, 512), rounds=2, context=1024,
    parts=("decode", "prefill", "memory"),
)  # fmt: skip


def main() -> None:
    options = _parser().parse_args()
    raise_on_signals()  # so that what was begun is ended and removed
    try:
        peer = find_programs(options.llama_rpc) if options.llama_rpc else None
    except FileNotFoundError as error:
        sys.exit(f"--llama-rpc: {error}")
    try:
        with _model_of(options) as model:
            report, text = measure(_scale(options), model, peer)
    except PpError as error:
        print("\n".join(describe_error(error)), file=sys.stderr)
        sys.exit(error.exit_status)
    report["options"] = {"model": options.shape or options.model, "peer": peer and str(peer.completion.parent)}
    body = json.dumps(report, indent=1)
    if options.json is None:
        print(body)
    else:
        options.json.write_text(body + "\n")
    print(text, file=sys.stderr)


def measure(scale: Scale, model: str, peer: LlamaPrograms | None) -> tuple[dict[str, Any], str]:
    """The report as an object and as text. A run that fails is named in both and spoils no figure."""
    machine = describe_machine()
    before, began = load_average(), time.monotonic()
    schedule = Schedule(scale, model, peer)
    samples = Samples()
    for round_index in range(scale.rounds):
        for case, run in schedule.steps(round_index):
            with Quiet() as quiet:
                try:
                    figures, error = dict(run()), None
                except NotMeasured as failure:
                    figures, error = {}, str(failure)
            samples.add(Sample(round_index, case, figures, quiet.foreign_cores, error))
            _progress(samples.all[-1])
    verdicts = judge(samples)
    machine |= {"load_before": before, "load_after": load_average(), "took_s": round(time.monotonic() - began, 1)}
    report = {
        "machine": machine,
        "scale": asdict(scale),
        "goals": [verdict.as_json() for verdict in verdicts],
        "summary": _summary(samples),
        "failures": [sample.as_json() for sample in samples.failed],
        "samples": [sample.as_json() for sample in samples.all],
    }
    return report, describe(samples, verdicts, machine)


def _summary(samples: Samples) -> list[dict[str, Any]]:
    """Each case with the spread of each of its figures."""
    rows = []
    for case in samples.cases():
        names = dict.fromkeys(name for sample in samples.all if sample.case == case for name in sample.figures)
        spreads = {name: samples.spread(case, name) for name in names}
        figures = {name: measured.as_json() for name, measured in spreads.items() if measured is not None}
        rows.append({**asdict(case), "figures": figures})
    return rows


def _progress(sample: Sample) -> None:
    shown = "  ".join(f"{name} {value:.4g}" for name, value in list(sample.figures.items())[:4])
    print(f"round {sample.round}  {sample.case}: {sample.error or shown}", file=sys.stderr, flush=True)


@contextmanager
def _model_of(options: argparse.Namespace) -> Iterator[str]:
    if options.shape is not None:
        with tempfile.TemporaryDirectory(prefix="pp-bench-") as folder:
            yield str(write_shaped_gguf(Path(folder) / f"{options.shape}.gguf", SHAPES[options.shape]))
        return
    if is_stub_model(options.model):
        yield options.model
        return
    path = find_model(parse_model(options.model))
    if path is None:
        sys.exit(f"{options.model} is not in the cache; fetch it with pp-smoke-run models fetch {options.model}")
    yield str(path)


def _scale(options: argparse.Namespace) -> Scale:
    scale = QUICK if options.quick else HEAVY if options.shape else Scale()
    given = {
        "stages": options.stages,
        "threads": options.threads,
        "chain_threads": options.chain_threads,
        "rounds": options.rounds,
        "tokens": options.tokens,
        "prompts": options.prompts,
        "parts": options.parts,
    }
    return replace(scale, **{name: value for name, value in given.items() if value is not None})


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(
        prog="python -m bench", description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--quick", action="store_true", help="two minutes: one round, fewer cases")
    parser.add_argument("--llama-rpc", type=Path, metavar="DIR", help="compare with llama.cpp's programs in DIR")
    parser.add_argument("--json", type=Path, metavar="FILE", help="write the JSON there instead of on stdout")
    parser.add_argument("--model", default=DEFAULT_MODEL, help="an alias, or the path of a GGUF file")
    parser.add_argument("--shape", choices=tuple(SHAPES), help="a random-weight model of this shape instead, made here")
    parser.add_argument("--stages", type=numbers, metavar="N,N", help="stages; 1 is the worker alone")
    parser.add_argument("--threads", type=numbers, metavar="T,T", help="threads of the worker alone and of llama.cpp")
    parser.add_argument("--chain-threads", type=numbers, metavar="T,T", help="threads of a chain's workers; 0: theirs")
    parser.add_argument("--prompts", type=numbers, metavar="L,L", help="prompt lengths of the prefill")
    parser.add_argument("--rounds", type=int, metavar="N")
    parser.add_argument("--tokens", type=int, metavar="N", help="tokens of a decode run")
    parser.add_argument("--parts", type=_parts, metavar="PART,PART", help=f"of {', '.join(PARTS)}")
    return parser


def _parts(text: str) -> tuple[str, ...]:
    parts = tuple(text.split(","))
    if unknown := set(parts) - set(PARTS):
        raise argparse.ArgumentTypeError(f"there is no part {unknown.pop()!r}")
    return parts


if __name__ == "__main__":
    main()
