"""Measure the local chain: one JSON line per run on stdout, with boot, first token and decode figures.

    python bench/chain.py [--stages 2,3,5] [--rounds 3] [--max-tokens 64] [--model smollm2:135m]

Rounds are interleaved over the stage counts, so that a busy moment of the machine touches all of them.
"""

from __future__ import annotations

import argparse
import json
import subprocess
import sys


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--stages", default="2,3,5")
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--max-tokens", type=int, default=64)
    parser.add_argument("--model", default="smollm2:135m")
    parser.add_argument("--prompt", default="Count from one to fifty in words.")
    options = parser.parse_args()
    for round_index in range(options.rounds):
        for stages in map(int, options.stages.split(",")):
            print(json.dumps({"round": round_index, **measure(options, stages)}), flush=True)


def measure(options: argparse.Namespace, stages: int) -> dict[str, object]:
    """The figures of one run; times in seconds."""
    command = [sys.executable, "-m", "ppsmoke.cli", "--seed", "--json", "--quiet", "--num-stages", str(stages)]
    command += ["--model", options.model, "--prompt", options.prompt, "--max-tokens", str(options.max_tokens)]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    if done.returncode != 0:
        sys.exit(f"N = {stages} failed with status {done.returncode}: {done.stderr.strip()}")
    body = json.loads(done.stdout)
    timings = body["timings"]
    return {
        "num_stages": stages,
        "tokens": len(body["tokens"]),
        "boot_s": round(sum(timings[phase] or 0 for phase in ("spawn_s", "join_s", "ready_s")), 4),
        "ttft_s": body["ttft_s"],
        "decode_tok_s": body["decode_tok_s"],
        "decode_p50_s": timings["decode_p50_s"],
        "decode_p99_s": timings["decode_p99_s"],
        "hop_s": timings["hop_s"],
        "total_s": timings["total_s"],
    }


if __name__ == "__main__":
    main()
