"""What cannot work is refused before anything is spawned: one sentence, one way out, the right exit status."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from fixtures.tiny_gguf import write_tiny_gguf
from tests.e2e.kit import SCRIPT, Box, Done

STUB = ("--model", "stub:layers=8")


@pytest.fixture(scope="module")
def tiny(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return write_tiny_gguf(tmp_path_factory.mktemp("tiny") / "tiny.gguf", architecture="qwen3", context_length=512)


def refuse(box: Box, status: int, *arguments: str, says: tuple[str, ...]) -> Done:
    done = box.run(*arguments).refused(status, *says)
    assert not list(box.state.glob("pp-smoke-run/runs/*")), "it was refused before the run began"
    return done


@pytest.mark.parametrize(
    ("arguments", "says"),
    [
        ((*STUB,), ("say where to run",)),
        (("--seed", "--vastai", *STUB), ("--seed and --vastai exclude each other",)),
        (("--seed", "-n", "0", *STUB), ("at least 2 stages", "not 0")),
        (("--seed", "-n", "1", *STUB), ("at least 2 stages", "not 1")),
        (("--seed", "-n", "-3", *STUB), ("--num-stages", "-3")),
        (("--seed", "-n", "9", *STUB), ("8 blocks", "9 stages")),
        (("--seed", "-n", "two", *STUB), ("--num-stages",)),
        (("--seed", "--max-tokens", "0", *STUB), ("--max-tokens", "0")),
        (("--seed", "--context", "-1", *STUB), ("--context", "-1")),
        (("--seed", "--temperature", "-0.1", *STUB), ("--temperature",)),
        (("--seed", "--top-p", "1.5", *STUB), ("--top-p",)),
        (("--seed", "--feedback", "sideways", *STUB), ("--feedback", "sideways")),
        (("--seed", "--budget", "soon", *STUB), ("--budget", "soon")),
        (("--seed", "--token-timeout", "nan", *STUB), ("--token-timeout",)),
        (("--seed", "--no-such-flag", *STUB), ("--no-such-flag",)),
        (("--seed", *STUB[:1]), ("--model", "argument")),
        (("nonsense",), ("nonsense",)),
        (("--seed", "--prompt", "", *STUB), ("the prompt is empty",)),
        (("--seed", "--prompt", "x" * 100, "--context", "99", *STUB), ("100 tokens", "context of 99")),
        (("--seed", "--model", "stub:lairs=8"), ("lairs",)),
        (("--seed", "--model", "stub:layers=many"), ("layers", "many")),
        (("--seed", "--model", "ftp://example.org/model.gguf"), ("ftp",)),
    ],
    ids=lambda value: " ".join(value)[:40] if isinstance(value, tuple) else None,
)
def test_usage_errors(box: Box, arguments: tuple[str, ...], says: tuple[str, ...]) -> None:
    refuse(box, 2, *arguments, says=says)


@pytest.mark.parametrize(
    ("name", "says"),
    [("THREADS", "is a number of threads, not 'many'"), ("ENGINE", "is one of"), ("WEIGHTS", "is one of f32, f16")],
)
def test_what_no_worker_can_be_told_is_refused_before_any_is_started(box: Box, name: str, says: str) -> None:
    done = box.run("--seed", *STUB, env={f"PP_WORKER_{name}": "many"}).refused(3, f"PP_WORKER_{name} {says}")
    assert "unset it" in done.err
    assert not list(box.state.glob("pp-smoke-run/runs/*"))


@pytest.mark.parametrize(
    ("arguments", "says", "fix"),
    [
        (("--num-stage", "3", *STUB), "No such option: --num-stage [usage]", "Did you mean --num-stages? See "),
        (("--model", "smolm2:135m"), "There is no model 'smolm2:135m'", "Did you mean smollm2:135m?"),
    ],
)
def test_what_is_nearly_right_is_asked_for(box: Box, arguments: tuple[str, ...], says: str, fix: str) -> None:
    done = refuse(box, 2, "--seed", *arguments, says=(says,))
    assert f"  fix: {fix}" in done.err
    assert "--image" not in done.err


def test_nothing_at_all_says_in_a_few_lines_what_is_missing(box: Box) -> None:
    done = refuse(box, 2, says=("say where to run: --seed or --vastai",))
    assert "pp-smoke-run --seed" in done.err
    assert "pp-smoke-run --help" in done.err
    assert done.text == ""
    assert len(done.err.splitlines()) < 6


@pytest.mark.parametrize("option", ["--help", "-h"])
def test_help_names_every_exit_status(box: Box, option: str) -> None:
    done = box.run(option).expect(0)
    for word in ("--seed", "--num-stages", "--json", "--budget", "130", "143", "129"):
        assert word in done.text
    assert done.err == ""


def test_version(box: Box) -> None:
    assert box.run("--version", program=(SCRIPT,)).expect(0).text.startswith("pp-smoke-run ")


def test_a_model_that_is_nowhere(box: Box) -> None:
    refuse(box, 3, "--seed", "--model", str(box.root / "absent.gguf"), says=("absent.gguf",))


def test_a_directory_for_a_model(box: Box) -> None:
    refuse(box, 3, "--seed", "--model", str(box.root), says=(str(box.root),))


@pytest.mark.skipif(os.geteuid() == 0, reason="root may read everything")
def test_a_model_that_may_not_be_read(box: Box, tiny: Path) -> None:
    path = box.root / "secret.gguf"
    path.write_bytes(tiny.read_bytes())
    path.chmod(0)
    refuse(box, 3, "--seed", "--model", str(path), says=("secret.gguf",))


@pytest.mark.parametrize(
    ("content", "says"),
    [
        (lambda whole: b"", ("broken.gguf",)),
        (lambda whole: whole[: len(whole) - 1000], ("broken.gguf", "ends at byte")),
        (lambda whole: whole[:2000], ("broken.gguf",)),
        (lambda whole: b"<!DOCTYPE html><html><body>Not found</body></html>", ("broken.gguf", "not a GGUF")),
        (lambda whole: b"GGUF\x63\0\0\0" + whole[8:], ("broken.gguf", "version 99")),
    ],
    ids=["empty", "tail cut", "head only", "html", "version"],
)
def test_a_file_that_is_no_whole_gguf(box: Box, tiny: Path, content: object, says: tuple[str, ...]) -> None:
    path = box.root / "broken.gguf"
    assert callable(content)
    path.write_bytes(content(tiny.read_bytes()))
    refuse(box, 3, "--seed", "--model", str(path), says=says)


def test_an_architecture_nobody_taught_it(box: Box) -> None:
    path = write_tiny_gguf(box.root / "foreign.gguf", overrides={"general.architecture": "mamba"})
    done = refuse(box, 3, "--seed", "--model", str(path), says=("mamba",))
    for supported in ("llama", "qwen2", "qwen3"):
        assert supported in done.err


def test_more_stages_than_blocks_of_a_real_file(box: Box, tiny: Path) -> None:
    refuse(box, 2, "--seed", "-n", "9", "--model", str(tiny), says=("8 blocks", "9 stages"))


def test_a_prompt_longer_than_the_context_of_a_real_file(box: Box, tiny: Path) -> None:
    prompt = "word " * 400
    refuse(box, 2, "--seed", "--model", str(tiny), "--context", "64", "--prompt", prompt, says=("context of 64",))


def test_a_stage_that_does_not_fit_into_memory(box: Box, tiny: Path) -> None:
    """The cache of that many positions needs 30 GB and more."""
    arguments = ("--seed", "--model", str(tiny), "--context", str(2**24), "-n", "8")
    refuse(box, 3, *arguments, says=("stage", "does not fit", "free"))


def test_a_log_directory_that_cannot_be_made(box: Box) -> None:
    (box.root / "file").write_text("")
    refuse(box, 3, "--seed", *STUB, "--log-dir", str(box.root / "file" / "logs"), says=("run directory", "file/logs"))


def test_a_device_this_machine_does_not_have(box: Box, tiny: Path) -> None:
    """Found by the first worker that tries, and said as what it is."""
    done = box.run("--seed", "--model", str(tiny), "--device", "NONSENSE", "--max-tokens", "2")
    assert done.status in (2, 3), done.err
    assert len(done.errors) == 1
    assert "has no device NONSENSE" in done.errors[0]
    assert "ModuleNotFoundError" not in done.err
    assert "name a device it has" in done.err.lower()
    assert "Traceback" not in done.err


def test_a_tiny_real_model_through_the_whole_chain(box: Box, tiny: Path) -> None:
    done = box.run(
        *("--seed", "-n", "3", "--model", str(tiny), "--max-tokens", "12", "--context", "128", "--json", "--verify"),
        *("--prompt", "the other stone", "--raw", "--device", "CPU"),
        deadline_s=180,
    )
    said = done.expect(0).json
    assert said["verify"]["equal"]
    assert len(said["tokens"]) == 12
    assert [stage["device"] for stage in said["timings"]["stages"]] == ["CPU"] * 3
