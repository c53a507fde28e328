"""`pp-smoke-run models`: which models can be named, which are in the cache; fetch one, remove one."""

from __future__ import annotations

import json
from dataclasses import asdict, dataclass
from enum import StrEnum
from pathlib import Path
from typing import Annotated

import typer

from ppsmoke import models
from ppsmoke.cli_group import PlainCommand, PlainGroup
from ppsmoke.errors import EnvironmentFault, ModelCorrupt, PpError, UsageError
from ppsmoke.figures import size
from ppsmoke.models import (
    ALIASES,
    CachedModel,
    ModelAlias,
    find_model,
    list_models,
    parse_model,
    remove_model,
    verify_model,
)
from ppsmoke.terminal import Terminal
from ppsmoke.wording import columns

models_app = typer.Typer(
    cls=PlainGroup,
    rich_markup_mode="rich",
    help="List, fetch and remove models. Without a command: list.\n\n"
    "The cache is $PP_SMOKE_CACHE, else $XDG_CACHE_HOME/pp-smoke-run, else ~/.cache/pp-smoke-run.",
)

_Verify = Annotated[bool, typer.Option("--verify", help="Compare every cached file with its sha256.")]
_Json = Annotated[bool, typer.Option("--json", help="One JSON list on stdout.")]


class State(StrEnum):
    ABSENT = "absent"
    CACHED = "cached"
    VERIFIED = "verified"
    INCOMPLETE = "incomplete"  # some parts of a split model are missing; a fetch brings them
    DAMAGED = "damaged"


@dataclass(frozen=True, slots=True)
class ListedModel:
    """`size` in bytes of the cached files, else the known size; `path` of the file to open; `problem` if damaged."""

    id: str
    size: int | None
    license: str | None
    state: State
    path: str | None
    source: str | None
    problem: str | None = None
    remedy: str | None = None


@models_app.callback(invoke_without_command=True)
def without_command(context: typer.Context, verify: _Verify = False, as_json: _Json = False) -> int:
    if context.invoked_subcommand is None:
        return list_command(verify=verify, as_json=as_json)
    if verify or as_json:
        raise UsageError("--verify and --json belong to list", remedy="Write pp-smoke-run models list --json.")
    return 0


@models_app.command("list", cls=PlainCommand)
def list_command(verify: _Verify = False, as_json: _Json = False) -> int:
    """List the models that have a name, and the others in the cache.

    Exit status 3 when --verify finds a damaged file.
    """
    terminal = Terminal(quiet=as_json)
    listed = _listed(verify, terminal)
    if as_json:
        print(json.dumps([asdict(model) for model in listed], indent=2), flush=True)
    else:
        print("\n".join(_table(listed)), flush=True)
    damaged = [model for model in listed if model.state is State.DAMAGED]
    for model in damaged:
        terminal.error(ModelCorrupt(model.problem or model.id, remedy=model.remedy))
    return ModelCorrupt.exit_status if verify and damaged else 0


@models_app.command("fetch", cls=PlainCommand)
def fetch_command(
    model: Annotated[str, typer.Argument(metavar="MODEL", help="A name from the list, or an https:// address.")],
) -> int:
    """Fetch a model into the cache, if it is not there yet, and print its path."""
    ref = parse_model(model)
    path = find_model(ref)
    if path is None:
        with models.show_progress() as progress:
            path = models.ensure_model(ref, progress=progress)
    print(path, flush=True)
    return 0


@models_app.command("remove", cls=PlainCommand)
def remove_command(
    model: Annotated[str, typer.Argument(metavar="MODEL", help="A cached model, as the list names it.")],
) -> int:
    """Remove a model from the cache and say what that freed."""
    # What is cached can be removed even where no name or address of this version leads to it.
    model_id = model if any(cached.id == model for cached in list_models()) else parse_model(model).id
    try:
        freed = remove_model(model_id)
    except OSError as error:
        raise EnvironmentFault(
            f"{model_id} cannot be removed: {error.strerror or error}",
            remedy="Remove it as the user who owns the cache.",
        ) from error
    print(f"removed {model_id}, {size(freed)} freed", flush=True)
    return 0


def _listed(verify: bool, terminal: Terminal) -> list[ListedModel]:
    cached = {model.id: model for model in list_models()}
    listed = []
    try:
        for name in [*ALIASES, *(model_id for model_id in cached if model_id not in ALIASES)]:
            if verify and name in cached:
                terminal.waiting(f"verifying {name}")
            listed.append(_examine(name, ALIASES.get(name), cached.get(name), verify))
    finally:
        terminal.settle()
    return listed


def _examine(model_id: str, alias: ModelAlias | None, model: CachedModel | None, verify: bool) -> ListedModel:
    license_name = alias.license if alias is not None else None
    if model is None:
        known = alias.size if alias is not None else None
        return ListedModel(model_id, known, license_name, State.ABSENT, None, None)
    state, problem = _state(model, verify)
    return ListedModel(
        model_id,
        model.nbytes,
        license_name,
        state,
        str(model.path),
        model.source,
        problem.what if problem is not None else None,
        problem.remedy if problem is not None else None,
    )


def _state(model: CachedModel, verify: bool) -> tuple[State, PpError | None]:
    try:
        if _path_in_use(model) is None:
            return State.INCOMPLETE, None
        verify_model(model, hashes=verify)
    except ModelCorrupt as error:
        return State.DAMAGED, error
    except OSError as error:
        return State.DAMAGED, EnvironmentFault(f"{model.path} cannot be read: {error.strerror or error}")
    return (State.VERIFIED if verify else State.CACHED), None


def _path_in_use(model: CachedModel) -> Path | None:
    """The path that --model with this id would use; None when a run would fetch first."""
    try:
        return find_model(parse_model(model.id))
    except UsageError:  # an alias of another version of pp-smoke-run
        return model.path


def _table(listed: list[ListedModel]) -> list[str]:
    """Names, then what else is cached: addresses are long, so each has a line of its own."""
    named = [model for model in listed if model.id in ALIASES]
    others = [model for model in listed if model.id not in ALIASES]
    rows = [("model", "size", "license", "state", "path"), *((model.id, *_cells(model)) for model in named)]
    lines = columns(rows, right=lambda column: column == 1)
    if others:
        lines += ["", "also in the cache"]
        for model in others:
            size_cell, _, state, path = _cells(model)
            lines += [f"  {model.id}", f"    {size_cell}  {state}  {path}"]
    return lines


def _cells(model: ListedModel) -> tuple[str, str, str, str]:
    return (
        size(model.size) if model.size is not None else "-",
        model.license or "-",
        "-" if model.state is State.ABSENT else model.state.value,
        model.path or "",
    )
