"""llama.cpp's programs: what they print, how they are found, and that their servers end."""

from __future__ import annotations

import os
import sys
from pathlib import Path

import pytest

from bench.llama_rpc import Llama, find_programs, parse_bench, parse_completion
from bench.samples import NotMeasured

# Recorded from llama-completion and llama-bench.
TIMINGS = """\
0.00.777.891 I common_perf_print:    sampling time =       3.46 ms
0.00.777.930 I common_perf_print:        load time =     164.40 ms
0.00.777.944 I common_perf_print: prompt eval time =      50.28 ms /     8 tokens (    6.28 ms per token,   159.12 t/s)
0.00.777.958 I common_perf_print:        eval time =     427.73 ms /    32 runs   (   13.37 ms per token,    74.81 t/s)
0.00.777.971 I common_perf_print:       total time =     484.82 ms /    40 tokens
"""
BENCH_LINE = '{"n_prompt": 64, "n_gen": 0, "avg_ns": 460928730, "avg_ts": 138.850099, "samples_ts": [ 138.85 ]}'

SERVER = """\
import socket, sys
listening = socket.create_server((sys.argv[sys.argv.index("-H") + 1], int(sys.argv[sys.argv.index("-p") + 1])))
while True:
    listening.accept()[0].close()
"""
CLIENT = """\
import socket, sys
for server in sys.argv[sys.argv.index("--rpc") + 1].split(",") if "--rpc" in sys.argv else []:
    host, port = server.split(":")
    socket.create_connection((host, int(port))).close()
if "broken" in sys.argv[sys.argv.index("-m") + 1]:
    sys.exit("the model is broken")
print({out!r})
print({err!r}, file=sys.stderr)
"""


def program(folder: Path, name: str, text: str) -> None:
    path = folder / name
    path.write_text(f"#!{sys.executable}\n{text}")
    path.chmod(0o755)


@pytest.fixture
def programs(tmp_path: Path) -> Path:
    folder = tmp_path / "bin"
    folder.mkdir()
    program(folder, "llama-completion", CLIENT.format(out="once", err=TIMINGS))
    program(folder, "llama-bench", CLIENT.format(out=BENCH_LINE, err=""))
    program(folder, "rpc-server", SERVER)
    return tmp_path


def living(folder: Path) -> list[str]:
    """Processes that run a program of this folder."""
    found = []
    for entry in Path("/proc").iterdir():
        if entry.name.isdigit():
            try:
                command = (entry / "cmdline").read_bytes().decode(errors="replace")
            except OSError:
                continue
            if str(folder) in command and int(entry.name) != os.getpid():
                found.append(command)
    return found


def test_completion_timings_are_read() -> None:
    assert parse_completion(TIMINGS) == pytest.approx(
        {
            "prompt_tokens": 8,
            "prefill_tok_s": 159.11,
            "first_token_s": 0.05028,
            "tokens": 33,
            "decode_tok_s": 74.81,
            "decode_mean_ms": 13.3666,
        },
        rel=1e-4,
    )


def test_one_token_has_a_prompt_and_no_decode() -> None:
    assert "decode_tok_s" not in parse_completion("".join(TIMINGS.splitlines(keepends=True)[:3]))


@pytest.mark.parametrize("text", ["", "error: failed to load the model\n"])
def test_without_timings_nothing_was_measured(text: str) -> None:
    with pytest.raises(NotMeasured):
        parse_completion(text)
    with pytest.raises(NotMeasured):
        parse_bench(text)


def test_bench_output_is_read() -> None:
    assert parse_bench(f"warning: something\n{BENCH_LINE}\n") == pytest.approx(138.85, rel=1e-4)


def test_programs_are_found_under_their_older_names_and_in_bin(programs: Path) -> None:
    found = find_programs(programs)
    assert (found.server.name, found.completion.name) == ("rpc-server", "llama-completion")
    program(programs / "bin", "ggml-rpc-server", SERVER)
    assert find_programs(programs / "bin").server.name == "ggml-rpc-server"


def test_a_missing_program_is_named(tmp_path: Path) -> None:
    with pytest.raises(FileNotFoundError, match="llama-completion and no llama-cli"):
        find_programs(tmp_path)


@pytest.mark.parametrize("servers", [0, 3])
def test_every_server_is_used_and_none_is_left(programs: Path, servers: int) -> None:
    llama = Llama(find_programs(programs), "model.gguf", servers, 1, deadline_s=60)
    assert llama.complete("once", 33)["tokens"] == 33
    assert llama.prefill(64, 16)["prefill_tok_s"] == pytest.approx(138.85, rel=1e-4)
    assert living(programs) == []


def test_a_client_that_fails_is_named_and_leaves_no_server(programs: Path) -> None:
    with pytest.raises(NotMeasured, match="status 1: the model is broken"):
        Llama(find_programs(programs), "broken.gguf", 2, 1, deadline_s=60).complete("once", 33)
    assert living(programs) == []
