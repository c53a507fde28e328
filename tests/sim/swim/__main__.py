"""Play one schedule again and tell what happens, event by event.

python -m tests.sim.swim FAMILY SEED
"""

from __future__ import annotations

import argparse
import sys

from tests.sim.swim.properties import violations
from tests.sim.swim.schedule import FAMILIES, play


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("family", choices=list(FAMILIES))
    parser.add_argument("seed")
    options = parser.parse_args()
    schedule = FAMILIES[options.family](options.seed)
    print(schedule.describe())
    network = play(schedule, trace=print)
    found = violations(schedule, network)
    print(f"digest {network.digest:08x}")
    for line in found:
        print("VIOLATION", line)
    sys.exit(1 if found else 0)


if __name__ == "__main__":
    main()
