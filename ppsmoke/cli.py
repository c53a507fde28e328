"""The command line of `pp-smoke-run`: it parses, asks others to do the work, and turns errors into exit statuses."""

from __future__ import annotations

import difflib
import json
import os
import signal
import sys
from collections.abc import Sequence
from contextlib import suppress
from importlib import import_module
from pathlib import Path
from typing import Annotated, Any

import typer

from ppsmoke import __version__
from ppsmoke.cli_group import (
    ALL_OPTIONS,
    Invocation,
    OptionsGroup,
    PlainCommand,
    forget_variables,
    given_options,
    with_origin,
)
from ppsmoke.cli_options import flag, number, option
from ppsmoke.errors import EnvironmentFault, Interrupted, PpError, RunFailed, UsageError
from ppsmoke.messages import Feedback
from ppsmoke.models import ALIASES, DEFAULT_MODEL
from ppsmoke.models_command import models_app
from ppsmoke.orchestrator.result import error_json
from ppsmoke.process_limits import refused_by_system
from ppsmoke.prompt_argument import read_prompt_argument
from ppsmoke.signals import exit_on_signals, interruption, raise_on_signals
from ppsmoke.standard_streams import open_missing_streams
from ppsmoke.terminal import Terminal
from ppsmoke.unloadable import unloadable
from ppsmoke.utf8_mode import begin_in_utf8_mode
from ppsmoke.vast import command_options as renting
from ppsmoke.vast.offers import OfferWishes, Strategy
from ppsmoke.vast.stage_request import DEFAULT_IMAGE

_RUN = "Run"
_MODEL = "Model and prompt"
_SAMPLING = "Sampling"
_OUTPUT = "Output"
_TIME = "Deadlines, in seconds"
_MORE = "More"
_RARE = frozenset(
    {
        *(_TIME, renting.RARE_PANEL),
        *("feedback", "raw", "members", "top_p", "sample_seed", "install_completion", "show_completion"),
    }
)
_WISHES = OfferWishes()


class _Root(OptionsGroup):
    rare = _RARE


app = typer.Typer(
    cls=_Root,
    rich_markup_mode="rich",
    pretty_exceptions_enable=False,
    context_settings={"help_option_names": ["-h", "--help"], "max_content_width": 100},
)


def main(arguments: Sequence[str] | None = None) -> None:
    """Run the command line and end the process with its exit status."""
    if arguments is None:
        begin_in_utf8_mode()
    open_missing_streams()
    try:
        status = _run_app(list(sys.argv[1:] if arguments is None else arguments))
    except Interrupted as again:  # another signal, while the first one was on its way to its report
        status = again.exit_status
    exit_on_signals(status)
    for stream in (sys.stdout, sys.stderr):
        with suppress(OSError, ValueError):
            stream.flush()
    # The network library's threads must not meet an interpreter that is being taken down.
    os._exit(status)


def _run_app(arguments: list[str]) -> int:
    raise_on_signals()
    call = Invocation(dict(os.environ), as_json="--json" in arguments, debug="--debug" in arguments)
    try:
        result = app(args=arguments, prog_name="pp-smoke-run", standalone_mode=False, obj=call)
        return result if isinstance(result, int) else 0
    except typer.Exit as ended:
        return ended.exit_code
    except typer.TyperException as error:
        return _report(_usage_error(error, arguments), call)
    except (KeyboardInterrupt, typer.Abort):
        return _report(interruption(signal.SIGINT), call)
    except PpError as error:
        return _report(with_origin(error, call.origins), call)
    except BrokenPipeError:
        return 0
    except SystemExit as end:
        # The command line's library ends like this when the reader of a help or a list went away, and after it wrote
        # or printed a completion script.
        return int(end.code or 0) if any("-completion" in argument for argument in arguments) else 0
    except ImportError as error:
        return _report(unloadable(error), call)
    except OSError as error:
        return _report(refused_by_system(error) or EnvironmentFault(f"the system refused: {error}"), call)
    except Exception as error:
        failure = refused_by_system(error) or RunFailed(
            f"unexpected {type(error).__name__}: {error}",
            remedy="This is a fault of pp-smoke-run; run again with --debug and report what it prints.",
        ).with_traceback(error.__traceback__)
        return _report(failure, call)


def _usage_error(error: typer.TyperException, arguments: list[str]) -> UsageError:
    what = error.format_message().replace("Value error, ", "")
    if "No such command" in what:
        return UsageError(what, remedy="A prompt goes behind --prompt; the commands are doctor, models and report.")
    see = f"See {' '.join(['pp-smoke-run', *_command(arguments)])} --help."
    wrong = getattr(error, "option_name", None)
    near = difflib.get_close_matches(wrong or "", getattr(error, "possibilities", None) or (), n=1)
    if wrong is not None and what.startswith("No such option"):
        # The library names also what is hardly like it, by the alphabet.
        what = f"No such option: {wrong}"
        see = f"Did you mean {near[0]}? {see}" if near else see
    return UsageError(what, remedy=see)


def _command(arguments: list[str]) -> list[str]:
    """The subcommand that the arguments name, as far as they name one."""
    if arguments[:1] == ["models"] and arguments[1:2] in (["list"], ["fetch"], ["remove"]):
        return arguments[:2]
    return arguments[:1] if arguments[:1] in (["doctor"], ["models"], ["report"]) else []


def _report(error: PpError, call: Invocation) -> int:
    exit_on_signals()
    Terminal(debug=call.debug).error(error)
    if call.as_json:
        with suppress(OSError):
            print(json.dumps({"exit_status": error.exit_status, "error": error_json(error)}))
    return error.exit_status


def _version(wanted: bool) -> None:
    if wanted:
        print(f"pp-smoke-run {__version__}")
        raise typer.Exit


def _all_options(context: typer.Context, wanted: bool) -> None:
    if wanted:
        context.meta[ALL_OPTIONS] = True
        print(context.get_help(), end="")
        raise typer.Exit


def _model_names() -> list[str]:
    """What a shell offers behind --model."""
    return list(ALIASES)


def _time(*names: str, text: str, low: float = 0.1, panel: str = _TIME) -> Any:
    return number(*names, kind=float, low=low, high=1e6, panel=panel, text=text, metavar="SECONDS")


@app.callback(invoke_without_command=True)
def run(
    context_: typer.Context,
    seed: Annotated[bool, flag("--seed", panel=_RUN, text="Run all stages on this machine.")] = False,
    vastai: Annotated[bool, flag("--vastai", panel=_RUN, text="Run on rented GPUs of vast.ai, one a stage.")] = False,
    teardown: Annotated[bool, flag("--teardown", panel=_RUN, text="Destroy what earlier runs left rented.")] = False,
    redeploy: Annotated[
        bool, flag("--redeploy", panel=_RUN, text="Send the code that runs here to a held run's nodes.")
    ] = False,
    num_stages: Annotated[
        int,
        number(
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
        option("--feedback", metavar="direct|orchestrator", panel=_RUN, text="Who feeds each token back."),
    ] = Feedback.DIRECT,
    device: Annotated[
        str, option("--device", metavar="NAME", panel=_RUN, text="tinygrad device (the first that works).")
    ] = "",
    hold: Annotated[
        bool,
        flag(
            "--hold",
            panel=_RUN,
            text="Serve every line of standard input.",
        ),
    ] = False,
    plan: Annotated[bool, flag("--plan", panel=_RUN, text="Print the run plan and stop.")] = False,
    verify: Annotated[bool, flag("--verify", panel=_RUN, text="Decode again in one process and compare.")] = False,
    prompt: Annotated[
        str, option("--prompt", "-p", metavar="TEXT", panel=_MODEL, text="The prompt; - reads standard input.")
    ] = "Say hello",
    system: Annotated[
        str | None, option("--system", metavar="TEXT", panel=_MODEL, text="System prompt for the chat template.")
    ] = None,
    raw: Annotated[bool, flag("--raw", panel=_MODEL, text="Feed the prompt without the chat template.")] = False,
    model: Annotated[
        str | None,
        option(
            "--model",
            "-m",
            metavar="MODEL",
            panel=_MODEL,
            text=f"Name, path or URL; {DEFAULT_MODEL}, rented {renting.RENTED_MODEL}.",
            autocompletion=_model_names,
        ),
    ] = None,
    max_tokens: Annotated[
        int,
        number("--max-tokens", kind=int, low=1, high=2**31 - 1, metavar="N", panel=_MODEL, text="Most new tokens."),
    ] = 64,
    context: Annotated[
        int, number("--context", kind=int, low=1, high=2**24, metavar="N", panel=_MODEL, text="KV cache positions.")
    ] = 2048,
    temperature: Annotated[
        float,
        number("--temperature", kind=float, low=0, high=1e6, metavar="T", panel=_MODEL, text="0: the likeliest token."),
    ] = 0.0,
    top_p: Annotated[
        float,
        number("--top-p", kind=float, low=1e-6, high=1, metavar="P", panel=_SAMPLING, text="Nucleus sampling's share."),
    ] = 1.0,
    sample_seed: Annotated[
        int,
        number(
            "--sample-seed", kind=int, low=0, high=2**63 - 1, metavar="N", panel=_SAMPLING, text="Same seed, same text."
        ),
    ] = 0,
    as_json: Annotated[
        bool, flag("--json", panel=_OUTPUT, text="One JSON object on stdout at the end, no stream.")
    ] = False,
    members: Annotated[
        bool, flag("--members", panel=_OUTPUT, text="Who is alive, on stderr, and every change.")
    ] = False,
    quiet: Annotated[bool, flag("--quiet", "-q", panel=_OUTPUT, text="Only the text, and errors.")] = False,
    debug: Annotated[bool, flag("--debug", panel=_OUTPUT, text="Every detail, and tracebacks.")] = False,
    log_dir: Annotated[
        Path | None, option("--log-dir", metavar="DIR", panel=_OUTPUT, text="For all that is known of the run.")
    ] = None,
    api_key: renting.ApiKeyText = None,
    gpu: renting.Gpus = None,
    offers: renting.Offers = Strategy.CHEAPEST,
    max_price: renting.MaxPrice = None,
    max_spend: renting.MaxSpend = renting.DEFAULT_MAX_SPEND,
    yes: renting.Yes = False,
    country: renting.Countries = None,
    not_country: renting.NotCountries = None,
    min_reliability: renting.MinReliability = _WISHES.min_reliability,
    min_download: renting.MinDown = _WISHES.min_inet_down_mbps,
    min_upload: renting.MinUp = _WISHES.min_inet_up_mbps,
    min_cuda: renting.MinCuda = _WISHES.min_cuda or 0.0,
    min_driver: renting.MinDriver = _WISHES.min_driver,
    datacenter: renting.Datacenter = False,
    unverified: renting.Unverified = False,
    replacements: renting.Replacements = 3,
    relay_url: renting.Relays = None,
    relay_token: renting.RelayToken = None,
    package: renting.Package = f"pp-smoke-run=={__version__}",
    ship: renting.Ship = False,
    index_url: renting.IndexUrl = "",
    image: renting.Image = DEFAULT_IMAGE,
    image_gb: renting.ImageGb = None,
    orphan_timeout: renting.OrphanTimeout = 600,
    label: renting.Label = None,
    everything: renting.Everything = False,
    vast_url: renting.VastUrl = "",
    time_scale: renting.TimeScale = 1.0,
    boot_timeout: Annotated[float, _time("--boot-timeout", text="A local node prints its address.")] = 20,
    join_timeout: Annotated[float | None, _time("--join-timeout", text="All nodes join; 30, rented 180.")] = None,
    ready_timeout: Annotated[float, _time("--ready-timeout", text="All stages load and compile.")] = 600,
    response_timeout: Annotated[float, _time("--response-timeout", text="The first token.")] = 600,
    token_timeout: Annotated[float, _time("--token-timeout", text="Silence between two tokens.")] = 60,
    stop_timeout: Annotated[float | None, _time("--stop-timeout", text="A stage stops; 5, rented 15.")] = None,
    kill_timeout: Annotated[float, _time("--kill-timeout", text="Then its process ends.")] = 2,
    silence_timeout: Annotated[
        float | None, _time("--silence-timeout", text="A silent stage is dead by then; 5, rented 30.", low=1)
    ] = None,
    budget: Annotated[
        float | None, _time("--budget", panel=_RUN, text="Bound of the whole run; none by default.")
    ] = None,
    config: Annotated[
        Path | None,
        option("--config", metavar="FILE", panel=_MORE, text="TOML; default: ~/.config/pp-smoke-run/config.toml."),
    ] = None,
    help_all: Annotated[
        bool,
        option(
            "--help-all", metavar="", panel=_MORE, text="The rare options too.", callback=_all_options, is_eager=True
        ),
    ] = False,
    version: Annotated[
        bool,
        option("--version", metavar="", panel=_MORE, text="Print the version.", callback=_version, is_eager=True),
    ] = False,
) -> int:
    """Cut a GGUF model into N stages, serve a prompt through them, print the text, leave nothing behind.

    Every option can also be set as PP_OPTION=... or in a config file: PP_NUM_STAGES=5, num-stages = 5.

    Exit statuses: 0 done, 1 run failed, 2 usage, 3 environment,
    4 something rented may be left, 130 SIGINT, 143 SIGTERM, 129 SIGHUP.
    """
    if context_.invoked_subcommand is not None:
        return 0
    forget_variables(os.environ, context_.command.params)
    renting.check_combination(given_options(context_))
    if isinstance(context_.obj, Invocation):
        for warning in context_.obj.warnings:
            Terminal(quiet=quiet).line(warning)
    rental = renting.RentalCommand(
        api_key=api_key,
        vast_url=vast_url,
        yes=yes,
        time_scale=time_scale,
        gpus=tuple(gpu or ()),
        strategy=offers,
        max_price=max_price,
        max_spend=max_spend,
        countries=tuple(country or ()),
        not_countries=tuple(not_country or ()),
        min_reliability=min_reliability,
        min_cuda=min_cuda,
        min_driver=min_driver,
        min_download=min_download,
        min_upload=min_upload,
        unverified=unverified,
        datacenter=datacenter,
        image=image,
        image_gb=image_gb,
        package=package,
        ship=ship,
        index_url=index_url,
        relay_urls=tuple(relay_url or ()),
        relay_token=relay_token or "",
        orphan_timeout=orphan_timeout,
        replacements=replacements,
    )
    if teardown:
        return int(
            _later("vast.teardown_command").teardown_command(
                rental, label=label, everything=everything, as_json=as_json, quiet=quiet, debug=debug
            )
        )
    if redeploy:
        redeploying = _later("redeploy_command")
        return int(redeploying.redeploy_command(label=label, as_json=as_json, quiet=quiet, debug=debug))
    if hold and prompt == "-":
        raise UsageError(
            "--hold reads its prompts from standard input, and so does --prompt -",
            remedy="Leave out --prompt, or give the first prompt itself with it.",
        )
    if prompt == "-" and not quiet and os.isatty(0):
        Terminal().line("the prompt is read from this terminal; Ctrl-D on a line of its own ends it")
    far = not renting.is_loopback(vast_url) if vastai else bool(relay_url)
    patience = _later("membership.patience")
    command = _later("command_steps").RunCommand(
        num_stages=num_stages,
        prompt=read_prompt_argument(prompt),
        system=system,
        raw=raw,
        model=model if model is not None else (renting.RENTED_MODEL if vastai else DEFAULT_MODEL),
        max_tokens=max_tokens,
        context=context,
        feedback=feedback,
        device=device,
        temperature=temperature,
        top_p=top_p,
        sample_seed=sample_seed,
        hold=hold,
        prompt_given=not hold or "prompt" in given_options(context_),
        plan=plan,
        verify=verify,
        as_json=as_json,
        members=members,
        quiet=quiet,
        debug=debug,
        log_dir=log_dir,
        relay_urls=tuple(relay_url or ()),
        relay_token=relay_token or "",
        deadlines=_later("orchestrator.options").Deadlines(
            boot=boot_timeout,
            join=join_timeout or (180 if vastai else 30),
            ready=ready_timeout,
            response=response_timeout,
            token=token_timeout,
            stop=stop_timeout or (15 if vastai else 5),
            kill=kill_timeout,
            silence=silence_timeout or (patience.WAN_SILENCE_S if far else patience.LOCAL_SILENCE_S),
            budget=budget,
        ),
    )
    if vastai:
        return int(_later("vast.command").vastai_command(command, rental))
    return int(_later("run_command").run_command(command))


def _later(name: str) -> Any:
    """A module, loaded only when it is needed: help and completion need none of the network's and the model's
    libraries, a local run none of those that talk to vast.ai, and no run those of a report."""
    return import_module(f"ppsmoke.{name}")


app.add_typer(models_app, name="models")


@app.command(cls=PlainCommand)
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
    return int(_later("doctor").doctor_command(as_json=as_json, device=device))


@app.command(cls=PlainCommand)
def report(
    directory: Annotated[
        Path | None,
        typer.Argument(
            metavar="DIR", help="The directory that a run left, or its id as it printed it; default: the newest run's."
        ),
    ] = None,
    as_json: Annotated[bool, typer.Option("--json", help="The analysis as one JSON object on stdout.")] = False,
    html: Annotated[
        Path | None,
        typer.Option(
            "--html", metavar="FILE", help="Also write a page with every stage's timeline, and trace.json into DIR."
        ),
    ] = None,
    trace: Annotated[
        Path | None, typer.Option("--trace", metavar="FILE", help="Also write a trace for ui.perfetto.dev.")
    ] = None,
) -> int:
    """Say what happened in a run, what bounded it and what ended it."""
    return int(_later("report_command").report_command(directory, as_json=as_json, html=html, trace=trace))


if __name__ == "__main__":
    main()
