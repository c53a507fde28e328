"""From what processes and the system say to figures."""

from __future__ import annotations

import os
import sys
from typing import Any

import pytest

from bench.chain import decode_figures, phase_figures, prefill_figures
from bench.edge_bytes import edge_bytes, parse_interface
from bench.machine_state import busy_seconds, describe_machine
from bench.memory import Resident, memory_figures, parse_status
from bench.process import run
from bench.prompts import PromptMaker
from bench.samples import NotMeasured
from bench.worker import figures

MB = 1_000_000
TICK = os.sysconf("SC_CLK_TCK")


def a_run(**timings: Any) -> dict[str, Any]:
    stage = {"load_s": 0.5, "compile_s": 0.25, "compute_p50_s": 0.002}
    known = {"model_s": 0.1, "spawn_s": 0.3, "join_s": 0.05, "ready_s": 1.5, "teardown_s": None}
    return {
        "tokens": [1, 2, 3],
        "prompt_tokens": 512,
        "ttft_s": 0.256,
        "decode_tok_s": 200.0,
        "timings": {
            **known,
            "decode_p50_s": 0.005,
            "decode_p99_s": 0.006,
            "hop_s": 0.0005,
            "hop_parts": {"outward_s": 0.0001, "write_s": 0.0001, "wire_s": 0.0002, "inward_s": 0.0001},
            "stages": [stage, {**stage, "load_s": 0.75}],
            **timings,
        },
    }


def test_decode_figures_and_the_parts_of_a_hop() -> None:
    found = decode_figures(a_run())
    assert found["decode_p50_ms"] == pytest.approx(5)
    assert found["compute_ms"] == pytest.approx(4)
    parts = ("outward", "write", "wire", "inward")
    assert sum(found[f"hop_{part}_ms"] for part in parts) == pytest.approx(found["hop_ms"]) == pytest.approx(0.5)


def test_a_run_without_times_of_hops_has_no_figures_of_them() -> None:
    found = decode_figures(a_run(hop_s=None, hop_parts=None, stages=[{"compute_p50_s": None}]))
    assert not [name for name in found if name.startswith(("hop", "compute"))]


def test_prefill_and_phases() -> None:
    assert prefill_figures(a_run()) == {"prefill_tok_s": 2000.0, "first_token_s": 0.256}
    phases = phase_figures(a_run())
    assert (phases["ready_s"], phases["slowest_load_s"], phases["prompt_s"]) == (1.5, 0.75, 0.256)
    assert "teardown_s" not in phases
    with pytest.raises(NotMeasured):
        prefill_figures({**a_run(), "ttft_s": None})


def test_figures_of_the_worker_alone() -> None:
    found = figures(8, 2.0, [2.04, 2.05, 2.06, 2.10])
    assert found["prefill_tok_s"] == pytest.approx(200)
    assert found["decode_tok_s"] == pytest.approx(50)
    assert (found["decode_p50_ms"], found["decode_p99_ms"]) == (pytest.approx(10), pytest.approx(40))
    assert figures(8, 2.0, [2.0]) == {"engine_ready_s": 2.0, "first_token_s": 0.0, "tokens": 1.0}
    with pytest.raises(NotMeasured):
        figures(8, 2.0, [])


def test_memory_beyond_weights_and_the_used_part_of_the_cache() -> None:
    found = {
        ("node", 0): Resident(50 * MB, 45 * MB),
        ("node", 1): Resident(52 * MB, 44 * MB),
        ("worker", 0): Resident(300 * MB, 150 * MB),
        ("worker", 1): Resident(200 * MB, 180 * MB),
    }
    plan = [{"weight_bytes": 60 * MB, "kv_bytes": 20 * MB}, {"weight_bytes": 100 * MB, "kv_bytes": 20 * MB}]
    assert memory_figures(found, plan, 0.5) == pytest.approx(
        {
            "node_mb": 45,
            "node_peak_mb": 52,
            "worker_mb": 180,
            "worker_peak_mb": 300,
            "worker_above_mb": 80,
            "all_mb": 419,
        }
    )
    assert memory_figures({}, plan, 0.5) == {}


def test_memory_of_a_process_as_the_system_states_it() -> None:
    status = "Name:\tpython\nVmHWM:\t   59588 kB\nVmRSS:\t   58000 kB\nThreads:\t5\n"
    assert parse_status(status) == Resident(59588 * 1024, 58000 * 1024)
    assert parse_status("Name:\tpython\nState:\tZ (zombie)\n") is None


def test_bytes_of_an_edge_are_the_payload_and_a_small_header() -> None:
    found = edge_bytes(576)
    assert 576 * 4 < found["activation_bytes"] <= 576 * 4 + 64
    assert 4 < found["token_bytes"] <= 68


def test_bytes_of_an_interface() -> None:
    text = "Inter-| Receive\n face |bytes packets\n    lo: 123456  789 0\n  eth0:9 1 0\n"
    assert (parse_interface(text, "lo"), parse_interface(text, "eth0"), parse_interface(text, "wlan0")) == (
        123456,
        9,
        None,
    )


def test_busy_time_is_all_but_idle_and_waiting() -> None:
    assert busy_seconds("cpu  100 20 30 5000 400 3 2 5 90 0\ncpu0 1 1 1 1 1 1 1 1\n") == pytest.approx(160 / TICK)
    assert busy_seconds("") is None


def test_the_machine_is_described() -> None:
    found = describe_machine()
    assert found["cores_usable"] >= 1
    assert {"tinygrad", "iroh"} <= set(found["packages"])


def test_prompts_have_the_wanted_length() -> None:
    prompts = PromptMaker("stub:layers=4")
    for length in (8, 32, 500):
        assert prompts.count(prompts.of_length(length)) == length
    assert prompts.of_length(100) == prompts.of_length(100)


def test_output_is_timed_and_a_bad_end_is_named() -> None:
    done = run([sys.executable, "-c", "print('one'); print(input())"], stdin="two", deadline_s=60)
    assert [line.text for line in done.lines] == ["one", "two"]
    assert done.first_byte_s is not None
    assert 0 < done.first_byte_s <= done.lines[-1].at_s <= done.wall_s
    with pytest.raises(NotMeasured, match=r"status 3: why \| it failed"):
        run(
            [sys.executable, "-c", "import sys; print('why'); print('it failed', file=sys.stderr); sys.exit(3)"],
            deadline_s=60,
        )
    with pytest.raises(NotMeasured, match="could not be started"):
        run(["/no/such/program"], deadline_s=60)


def test_a_process_that_does_not_end_is_killed() -> None:
    with pytest.raises(NotMeasured, match=r"did not end within 0\.5 s"):
        run([sys.executable, "-c", "import time; time.sleep(600)"], deadline_s=0.5)
