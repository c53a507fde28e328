"""The command line with options set elsewhere: what reaches the run, and what an error says about the place."""

from __future__ import annotations

import json
import os
import threading
from collections.abc import Callable
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
import typer

from ppsmoke import cli
from ppsmoke.cli_group import Invocation, option_shapes
from ppsmoke.command_steps import RunCommand
from ppsmoke.errors import UsageError
from ppsmoke.messages import Generation
from ppsmoke.orchestrator.node_environment import node_environment
from ppsmoke.orchestrator.options import RunOptions
from ppsmoke.request import open_model
from ppsmoke.stage.settings import describe_variables
from tests.cli.kit import environment, run_cli

Run = Callable[..., Any]


@pytest.fixture
def run(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> Run:
    """Parses a command line and gives what would be run: a RunCommand, or the rental of a --vastai or --teardown."""
    real = cli._later

    def later(name: str) -> Any:
        stubs: dict[str, Any] = {
            "run_command": SimpleNamespace(run_command=_keep),
            "vast.command": SimpleNamespace(vastai_command=lambda command, rental: _keep((command, rental))),
            "vast.teardown_command": SimpleNamespace(teardown_command=lambda rental, **how: _keep((rental, how))),
        }
        return stubs.get(name) or real(name)

    kept: list[Any] = []

    def _keep(what: Any) -> int:
        kept.append(what)
        return 0

    monkeypatch.setattr(cli, "_later", later)

    def parse(*arguments: str, config: str = "", **variables: str) -> Any:
        kept.clear()
        file = tmp_path / "config.toml"
        file.write_text(config)
        for name, value in variables.items():
            monkeypatch.setenv(name, value)
        environ = {"PP_CONFIG": str(file), **variables}
        call = Invocation(environ)
        assert cli.app(args=list(arguments), prog_name="pp-smoke-run", standalone_mode=False, obj=call) == 0
        return kept[0]

    return parse


def test_every_option_of_a_run_has_a_variable_and_a_key() -> None:
    group = typer.main.get_command(cli.app)
    shapes = {shape.parameter: shape for shape in option_shapes(group.params)}
    without = {parameter.name for parameter in group.params} - set(shapes)
    assert without == {"config", "help_all", "version", "install_completion", "show_completion"}
    assert shapes["num_stages"].variable == "PP_NUM_STAGES"
    assert (shapes["as_json"].variable, shapes["everything"].variable) == ("PP_JSON", "PP_ALL")


def test_flags_win_over_variables_and_those_over_the_file(run: Run) -> None:
    config = 'seed = true\nmodel = "stub:layers=8"\nnum-stages = 3\nmax-tokens = 5\ntemperature = 0.5\n'
    command = run("--num-stages", "4", config=config, PP_MAX_TOKENS="6", PP_NUM_STAGES="7", PP_QUIET="1")
    assert isinstance(command, RunCommand)
    assert (command.num_stages, command.max_tokens, command.temperature) == (4, 6, 0.5)
    assert (command.model, command.quiet, command.as_json) == ("stub:layers=8", True, False)


def test_a_place_to_run_that_is_set_elsewhere_is_enough(run: Run) -> None:
    assert run(config="seed = true").num_stages == 2
    assert run(PP_SEED="1").num_stages == 2


def test_the_mode_on_the_command_line_wins(run: Run) -> None:
    command, _ = run("--vastai", config="seed = true\nverify = true\nboot-timeout = 3")
    assert not command.verify, "what has no place in the mode is left out"
    assert isinstance(run("--seed", PP_VASTAI="1"), RunCommand)


def test_options_for_renting_that_are_set_elsewhere_do_not_hinder_a_local_run(run: Run) -> None:
    config = 'gpu = ["RTX 4090"]\nmax-price = 0.5\ncountry = "US"\n'
    assert run("--seed", config=config, PP_API_KEY="k", PP_SHIP="1").num_stages == 2
    _, rental = run("--vastai", config=config, PP_API_KEY="k", PP_SHIP="1")
    assert (rental.gpus, rental.max_price, rental.countries) == (("RTX 4090",), 0.5, ("US",))
    assert (rental.api_key, rental.ship) == ("k", True)
    rental, how = run("--teardown", config=config + 'prompt = "x"', PP_YES="1")
    assert (rental.yes, rental.gpus, how["label"]) == (True, (), None)


@pytest.mark.parametrize(
    ("arguments", "config", "variables", "says"),
    [
        (("--seed",), "", {"PP_NUM_STAGES": "two"}, "PP_NUM_STAGES: 'two' is not a whole number"),
        (("--seed",), "#\nmax-tokens = 2.5", {}, "line 2: max-tokens: '2.5' is not a whole number"),
        (("--seed",), 'feedback = "sideways"', {}, "line 1: feedback: 'sideways' is not one of"),
        ((), "", {"PP_SEED": "1", "PP_VASTAI": "1"}, "PP_SEED and PP_VASTAI exclude each other"),
        (("--seed",), "hold = true\nverify = true", {}, "line 1: hold and "),
        ((), "seed = 1", {}, "line 1: seed is true or false"),
        (("--seed", "--config", "conf"), "", {}, "the config file ./conf cannot be read"),
        (("--seed",), '#\nlog-dir = ""', {}, "line 2: log-dir gives is empty"),
        (("--seed", "--log-dir", ""), "", {}, "the path that --log-dir gives is empty"),
        (("--seed", "--config", ""), "", {}, "the path that --config gives is empty"),
        (("report", ""), "", {}, "the path that DIR gives is empty"),
        (("report", "--html", ""), "", {}, "the path that --html gives is empty"),
    ],
)
def test_an_error_names_the_place_of_the_value(
    run: Run, arguments: tuple[str, ...], config: str, variables: dict[str, str], says: str
) -> None:
    with pytest.raises(UsageError) as caught:
        run(*arguments, config=config, **variables)
    assert says in caught.value.what
    if "not a whole number" in says:
        assert caught.value.remedy == "Set it to a whole number there."


def test_a_config_file_that_is_a_pipe_is_read_if_somebody_writes_it(
    run: Run, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    pipe = tmp_path / "pipe"
    os.mkfifo(pipe)
    writer = threading.Thread(target=pipe.write_text, args=("num-stages = 7",))
    writer.start()
    assert run("--seed", "--config", str(pipe)).num_stages == 7
    writer.join()
    monkeypatch.setattr("ppsmoke.named_file.PATIENCE_S", 0.1)
    with pytest.raises(UsageError, match=r"pipe cannot be read: nothing came out of it for 0\.1 s"):
        run("--seed", "--config", str(pipe))


def test_a_relays_token_that_is_set_elsewhere_waits_for_a_relay(run: Run) -> None:
    assert run("--seed", PP_RELAY_TOKEN="t").relay_token == ""
    assert run("--seed", "--relay-url", "https://relay.example", PP_RELAY_TOKEN="t").relay_token == "t"


def test_children_inherit_no_option(run: Run) -> None:
    run(
        "--seed",
        PP_NUM_STAGES="3",
        PP_DEVICE="CUDA",
        PP_JOIN_TIMEOUT="7",
        PP_WORKER_THREADS="2",
        PP_MODEL="stub:layers=4",
    )
    left = {name for name in os.environ if name.startswith("PP_")}
    assert "PP_WORKER_THREADS" in left
    assert left.isdisjoint(("PP_NUM_STAGES", "PP_DEVICE", "PP_JOIN_TIMEOUT", "PP_MODEL", "PP_CONFIG"))


def test_what_a_node_shares_a_name_with_is_always_the_runs_word(tmp_path: Path) -> None:
    """Some options are named like variables of nodes, and whoever uses the Python API may have them set."""
    options = {shape.variable for shape in option_shapes(typer.main.get_command(cli.app).params)}
    shared = options & {name for name, _, _ in describe_variables()}
    assert "PP_MODEL" in shared
    run_options = RunOptions(
        run_id="0" * 32,
        model=open_model("stub:layers=4", None),
        num_stages=2,
        prompt_tokens=(1,),
        generation=Generation(max_tokens=1, eos_token_ids=()),
        context=8,
        log_dir=tmp_path,
    )
    told = node_environment(
        run_options,
        0,
        inherited=dict.fromkeys(shared, "inherited"),
        seed_ticket="",
        node_key=bytes(32),
        join_token="00",
    )
    assert "inherited" not in told.values()


def test_a_real_run_reads_its_config_and_says_as_json_what_is_wrong_with_it(tmp_path: Path) -> None:
    env = environment(tmp_path, PP_MODEL="stub:layers=4", PP_MAX_TOKENS="3")
    file = tmp_path / "config" / "pp-smoke-run" / "config.toml"
    file.parent.mkdir(parents=True)
    file.write_text("seed = true\njson = true\n")
    said = json.loads(run_cli(env).stdout)
    assert (said["exit_status"], said["model"], len(said["tokens"])) == (0, "stub:layers=4", 3)
    file.write_text('json = true\n\nnum-stages = "5"\napi-key = "k"\n')
    done = run_cli(env, "--seed", "--json")
    assert done.returncode == 2
    assert json.loads(done.stdout)["error"]["message"].endswith("line 3: num-stages is a number, not the text '5'")


def test_a_key_that_others_can_read_is_warned_of(run: Run, capsys: pytest.CaptureFixture[str], tmp_path: Path) -> None:
    (tmp_path / "config.toml").touch(0o644)
    run("--seed", config='api-key = "s3cret"')
    said = capsys.readouterr().err
    assert "chmod 600" in said
    assert "s3cret" not in said


def test_a_misspelt_variable_is_warned_of_and_what_nodes_read_is_not(
    run: Run, capsys: pytest.CaptureFixture[str]
) -> None:
    shared = dict.fromkeys((name for name, _, _ in describe_variables()), "")
    assert run("--seed", PP_NUM_STAGE="3", PP_SOMEBODYS="1", **shared).num_stages == 2
    said = capsys.readouterr().err
    assert "PP_NUM_STAGE is no option" in said
    assert "did you mean PP_NUM_STAGES?" in said
    assert said.count("is no option") == 1
