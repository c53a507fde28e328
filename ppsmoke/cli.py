"""The command line of `pp-smoke-run`: it parses, asks others to do the work, and turns errors into exit statuses."""

from __future__ import annotations

import json
import os
import signal
import sys
from collections.abc import Sequence
from contextlib import suppress
from pathlib import Path
from typing import Annotated, Any

import typer

from ppsmoke import __version__
from ppsmoke.doctor import doctor_command
from ppsmoke.errors import EnvironmentFault, Interrupted, PpError, RunFailed, UsageError
from ppsmoke.messages import Feedback
from ppsmoke.models import DEFAULT_MODEL
from ppsmoke.models_command import models_app
from ppsmoke.orchestrator.options import Deadlines
from ppsmoke.orchestrator.result import error_json
from ppsmoke.run_command import RunCommand, run_command
from ppsmoke.signals import exit_on_signals, interruption, raise_on_signals
from ppsmoke.standard_streams import open_missing_streams
from ppsmoke.terminal import Terminal

_RUN = "Run"
_MODEL = "Model and prompt"
_SAMPLING = "Sampling"
_OUTPUT = "Output"
_TIME = "Deadlines, in seconds"

app = typer.Typer(
    add_completion=False,
    no_args_is_help=True,
    rich_markup_mode="rich",
    pretty_exceptions_enable=False,
    context_settings={"help_option_names": ["-h", "--help"], "max_content_width": 100},
)


def main(arguments: Sequence[str] | None = None) -> None:
    """Run the command line and end the process with its exit status."""
    open_missing_streams()
    try:
        status = _run_app(list(sys.argv[1:] if arguments is None else arguments))
    except Interrupted as again:  # another signal, while the first one was on its way to its report
        status = again.exit_status
    exit_on_signals()
    for stream in (sys.stdout, sys.stderr):
        with suppress(OSError, ValueError):
            stream.flush()
    # The network library's threads must not meet an interpreter that is being taken down.
    os._exit(status)


def _run_app(arguments: list[str]) -> int:
    raise_on_signals()
    as_json, debug = "--json" in arguments, "--debug" in arguments
    try:
        result = app(args=arguments, prog_name="pp-smoke-run", standalone_mode=False)
        return result if isinstance(result, int) else 0
    except typer.Exit as ended:
        return ended.exit_code
    except typer.TyperException as error:
        if not arguments:
            print(error.format_message(), file=sys.stderr)  # the help
            return UsageError.exit_status
        what = error.format_message().replace("Value error, ", "")
        hint = "A prompt goes behind --prompt; the commands are doctor and models." if "No such command" in what else ""
        hint = hint or f"See {' '.join(['pp-smoke-run', *_command(arguments)])} --help."
        return _report(UsageError(what, remedy=hint), as_json=as_json, debug=debug)
    except (KeyboardInterrupt, typer.Abort):
        return _report(interruption(signal.SIGINT), as_json=as_json, debug=debug)
    except PpError as error:
        return _report(error, as_json=as_json, debug=debug)
    except BrokenPipeError:
        return 0
    except SystemExit:
        # The command line's library ends like this when the reader of a help or a list went away.
        return 0
    except OSError as error:
        return _report(EnvironmentFault(f"the system refused: {error}"), as_json=as_json, debug=debug)
    except Exception as error:
        failure = RunFailed(
            f"unexpected {type(error).__name__}: {error}",
            remedy="This is a fault of pp-smoke-run; run again with --debug and report what it prints.",
        ).with_traceback(error.__traceback__)
        return _report(failure, as_json=as_json, debug=debug)


def _command(arguments: list[str]) -> list[str]:
    """The subcommand that the arguments name, as far as they name one."""
    if arguments[:1] == ["models"] and arguments[1:2] in (["list"], ["fetch"], ["remove"]):
        return arguments[:2]
    return arguments[:1] if arguments[:1] in (["doctor"], ["models"]) else []


def _report(error: PpError, *, as_json: bool, debug: bool) -> int:
    exit_on_signals()
    Terminal(debug=debug).error(error)
    if as_json:
        with suppress(OSError):
            print(json.dumps({"exit_status": error.exit_status, "error": error_json(error)}))
    return error.exit_status


def _version(wanted: bool) -> None:
    if wanted:
        print(f"pp-smoke-run {__version__}")
        raise typer.Exit


def _option(*names: str, panel: str, text: str, **more: Any) -> Any:
    return typer.Option(*names, help=text, rich_help_panel=panel, **more)


def _flag(*names: str, panel: str, text: str) -> Any:
    return _option(*names, panel=panel, text=text, metavar="")


def _number(*names: str, kind: type[int] | type[float], low: float, high: float, **more: Any) -> Any:
    """A number in [low, high]; the help shows its metavar alone, the error its bounds."""

    def parse(text: str) -> float:
        try:
            value = kind(text)
        except ValueError:
            raise typer.BadParameter(f"{text!r} is not a {'whole number' if kind is int else 'number'}") from None
        if not low <= value <= high:
            shown = "d" if kind is int else "g"
            raise typer.BadParameter(
                f"{text} is out of range: give a number from {kind(low):{shown}} to {kind(high):{shown}}"
            )
        return value

    return _option(*names, parser=parse, **more)


def _time(*names: str, text: str, low: float = 0.1) -> Any:
    return _number(*names, kind=float, low=low, high=1e6, panel=_TIME, text=text, metavar="SECONDS")


@app.callback(invoke_without_command=True)
def run(
    context_: typer.Context,
    seed: Annotated[bool, _flag("--seed", panel=_RUN, text="Run all stages on this machine.")] = False,
    vastai: Annotated[
        bool, _flag("--vastai", panel=_RUN, text="Run on rented GPUs (not available in this version).")
    ] = False,
    num_stages: Annotated[
        int,
        _number(
            "--num-stages",
            "-n",
            kind=int,
            low=0,
            high=65535,
            metavar="N",
            panel=_RUN,
            text="How many stages, at least 2.",
        ),
    ] = 2,
    feedback: Annotated[
        Feedback,
        _option("--feedback", metavar="direct|orchestrator", panel=_RUN, text="Who feeds each token back."),
    ] = Feedback.DIRECT,
    device: Annotated[
        str, _option("--device", metavar="NAME", panel=_RUN, text="tinygrad device; default: the first that works.")
    ] = "",
    plan: Annotated[bool, _flag("--plan", panel=_RUN, text="Print the run plan and stop.")] = False,
    verify: Annotated[bool, _flag("--verify", panel=_RUN, text="Decode again in one process and compare.")] = False,
    prompt: Annotated[
        str, _option("--prompt", "-p", metavar="TEXT", panel=_MODEL, text="The prompt; - reads standard input.")
    ] = "Say hello",
    system: Annotated[
        str | None, _option("--system", metavar="TEXT", panel=_MODEL, text="System prompt for the chat template.")
    ] = None,
    raw: Annotated[bool, _flag("--raw", panel=_MODEL, text="Feed the prompt without the chat template.")] = False,
    model: Annotated[
        str,
        _option(
            "--model", "-m", metavar="MODEL", panel=_MODEL, text="Alias, path, https:// URL, or split's first part."
        ),
    ] = DEFAULT_MODEL,
    max_tokens: Annotated[
        int,
        _number("--max-tokens", kind=int, low=1, high=2**31 - 1, metavar="N", panel=_MODEL, text="Most new tokens."),
    ] = 64,
    context: Annotated[
        int, _number("--context", kind=int, low=1, high=2**24, metavar="N", panel=_MODEL, text="KV cache positions.")
    ] = 2048,
    temperature: Annotated[
        float,
        _number(
            "--temperature", kind=float, low=0, high=1e6, metavar="T", panel=_SAMPLING, text="0: the likeliest token."
        ),
    ] = 0.0,
    top_p: Annotated[
        float,
        _number(
            "--top-p", kind=float, low=1e-6, high=1, metavar="P", panel=_SAMPLING, text="Nucleus sampling's share."
        ),
    ] = 1.0,
    sample_seed: Annotated[
        int,
        _number(
            "--sample-seed", kind=int, low=0, high=2**63 - 1, metavar="N", panel=_SAMPLING, text="Same seed, same text."
        ),
    ] = 0,
    as_json: Annotated[
        bool, _flag("--json", panel=_OUTPUT, text="One JSON object on stdout at the end, no stream.")
    ] = False,
    members: Annotated[
        bool, _flag("--members", panel=_OUTPUT, text="Who is alive, on stderr: after boot, on change, at the end.")
    ] = False,
    quiet: Annotated[bool, _flag("--quiet", "-q", panel=_OUTPUT, text="Only the text, and errors.")] = False,
    debug: Annotated[bool, _flag("--debug", panel=_OUTPUT, text="Every detail, and tracebacks.")] = False,
    log_dir: Annotated[
        Path | None, _option("--log-dir", metavar="DIR", panel=_OUTPUT, text="Where the stages' logs go.")
    ] = None,
    boot_timeout: Annotated[float, _time("--boot-timeout", text="A node prints its address.")] = 20,
    join_timeout: Annotated[float, _time("--join-timeout", text="All nodes join.")] = 30,
    ready_timeout: Annotated[float, _time("--ready-timeout", text="All stages load and compile.")] = 600,
    response_timeout: Annotated[float, _time("--response-timeout", text="The first token.")] = 600,
    token_timeout: Annotated[float, _time("--token-timeout", text="Silence between two tokens.")] = 60,
    stop_timeout: Annotated[float, _time("--stop-timeout", text="A stage stops.")] = 5,
    kill_timeout: Annotated[float, _time("--kill-timeout", text="Then its process ends.")] = 2,
    silence_timeout: Annotated[float, _time("--silence-timeout", text="A silent stage counts as dead.", low=1)] = 5,
    budget: Annotated[float | None, _time("--budget", text="The whole run; off by default.")] = None,
    version: Annotated[
        bool, typer.Option("--version", help="Print the version and stop.", callback=_version, is_eager=True)
    ] = False,
) -> int:
    """Cut a GGUF model into N stages, serve a prompt through them, print the text, leave nothing behind.

    The generated text is the only thing on standard output.

    Exit statuses: 0 done, 1 run failed, 2 usage, 3 environment, 130 SIGINT, 143 SIGTERM, 129 SIGHUP.
    """
    if context_.invoked_subcommand is not None:
        return 0
    if seed == vastai:
        raise UsageError(
            "give exactly one of --seed and --vastai" if seed else "say where to run",
            remedy="--seed runs all stages on this machine.",
        )
    if vastai:
        raise UsageError("--vastai is not available in this version", remedy="Use --seed for a local run.")
    return run_command(
        RunCommand(
            num_stages=num_stages,
            prompt=_read_prompt(prompt),
            system=system,
            raw=raw,
            model=model,
            max_tokens=max_tokens,
            context=context,
            feedback=feedback,
            device=device,
            temperature=temperature,
            top_p=top_p,
            sample_seed=sample_seed,
            plan=plan,
            verify=verify,
            as_json=as_json,
            members=members,
            quiet=quiet,
            debug=debug,
            log_dir=log_dir,
            deadlines=Deadlines(
                boot=boot_timeout,
                join=join_timeout,
                ready=ready_timeout,
                response=response_timeout,
                token=token_timeout,
                stop=stop_timeout,
                kill=kill_timeout,
                silence=silence_timeout,
                budget=budget,
            ),
        )
    )


app.add_typer(models_app, name="models")


@app.command()
def doctor(
    device: Annotated[
        str, typer.Option("--device", metavar="NAME", help="tinygrad device to try; default: as a run chooses.")
    ] = "",
    as_json: Annotated[bool, typer.Option("--json", help="One JSON list on stdout.")] = False,
) -> int:
    """Check compiler, device, network, cache, memory and versions, and say what to do.

    Each check is ok, warn, fail, or - (not there and not needed).

    Exit status 0 when a local run can work, 3 when something it needs fails.
    """
    return doctor_command(as_json=as_json, device=device)


def _read_prompt(prompt: str) -> str:
    """The prompt itself, or standard input for `-`. Raises UsageError for input that is no text."""
    if prompt != "-":
        return prompt
    try:
        # Piece by piece: Python acts on a signal between statements, and one long read would be a single one.
        pieces = []
        while piece := os.read(0, 1 << 16):
            pieces.append(piece)
        # The line's end that `echo` adds is no part of what the user asked.
        return b"".join(pieces).decode().removesuffix("\n").removesuffix("\r")
    except OSError as error:
        raise UsageError(
            f"standard input cannot be read: {error.strerror}", remedy="Give the prompt with --prompt TEXT."
        ) from None
    except UnicodeDecodeError as error:
        raise UsageError(
            f"standard input is not UTF-8 text: {error.reason} at byte {error.start}",
            remedy="Convert it first, as with iconv -t UTF-8.",
        ) from None


if __name__ == "__main__":
    main()
