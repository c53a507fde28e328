"""The command line's root: options that were not given on it come from the environment and from the config file."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import typer
from typer.core import TyperCommand, TyperGroup

from ppsmoke.config_file import default_config, read_config
from ppsmoke.errors import BadStageCount, PpError, UsageError
from ppsmoke.option_values import (
    PREFIX,
    Kind,
    OptionShape,
    Settings,
    config_settings,
    environment_settings,
    merge,
    misspelt_variables,
)
from ppsmoke.vast.command_options import EXCLUSIVE, MODES, NEEDS, has_place

_CONFIG_VARIABLE = f"{PREFIX}CONFIG"
_COMPLETION = {
    "install_completion": "Install completion for the shell that calls this: it edits that shell's startup file.",
    "show_completion": "Print that script, to copy it.",
}
_NOT_SETTINGS = frozenset({"config", "version", "help", "help_all", *_COMPLETION})
_SECRETS = frozenset({"api_key", "relay_token"})
_NOT_IN_FILES = {
    "config": "the file is chosen by it",
    "teardown": "it is no way to run",
    "redeploy": "it is no way to run",
    "label": "it belongs to --teardown and --redeploy",
    "all": "it belongs to --teardown",
}


@dataclass(slots=True)
class Invocation:
    """What is known of a call before its options are all parsed, and what they then come to.

    origins: where a value that is not from the command line stands, by parameter.
    """

    environ: Mapping[str, str]
    as_json: bool = False
    debug: bool = False
    origins: dict[str, str] = field(default_factory=dict)
    warnings: list[str] = field(default_factory=list)


class PlainCommand(TyperCommand):
    """One whose help says of a flag no type, and that takes no empty path."""

    def parse_args(self, ctx: Any, args: list[str]) -> list[str]:
        if not ctx.resilient_parsing:
            refuse_empty_paths(self.get_params(ctx), self.make_parser(ctx).parse_args(list(args))[0])
        return super().parse_args(ctx, args)

    def format_help(self, ctx: Any, formatter: Any) -> None:
        hide_types_of_flags(self.get_params(ctx))
        super().format_help(ctx, formatter)


class PlainGroup(TyperGroup):
    """As PlainCommand."""

    def format_help(self, ctx: Any, formatter: Any) -> None:
        hide_types_of_flags(self.get_params(ctx))
        super().format_help(ctx, formatter)


def hide_types_of_flags(parameters: Sequence[Any]) -> None:
    for parameter in parameters:
        if getattr(parameter, "is_flag", False):
            parameter.metavar = ""


def refuse_empty_paths(
    parameters: Sequence[Any], written: Mapping[str, Any], origins: Mapping[str, str] | None = None
) -> None:
    """An empty text would name the folder in which one is: mostly it is a script's variable that is not set.

    origins: where a value stands, by parameter; else it is on the command line. Raises UsageError.
    """
    for parameter in parameters:
        if parameter.type_descriptor.annotation is Path and written.get(parameter.name) == "":
            option = max(parameter.opts, key=len) if parameter.opts[0].startswith("-") else parameter.metavar
            place = (origins or {}).get(parameter.name, option)
            raise UsageError(f"the path that {place} gives is empty", remedy="Name a place, or leave it out.")


class OptionsGroup(TyperGroup):
    """The context's object is an Invocation."""

    rare: frozenset[str] = frozenset()
    """Options, by parameter, and panels of them that `--help` leaves to `--help-all`."""

    def parse_args(self, ctx: Any, args: list[str]) -> list[str]:
        invocation = ctx.obj
        if ctx.resilient_parsing or not isinstance(invocation, Invocation):
            return super().parse_args(ctx, args)
        written, rest, _ = self.make_parser(ctx).parse_args(list(args))
        refuse_empty_paths(self.get_params(ctx), written)
        for completion in _COMPLETION if rest else ():
            if written.get(completion):
                raise UsageError(
                    f"--{completion.replace('_', '-')} takes no value, and {rest[0]!r} is none of its business",
                    remedy="Call it from the shell it is for: bash, zsh, fish or PowerShell.",
                )
        if rest or any(written.get(name) for name in _NOT_SETTINGS - {"config"}):
            return super().parse_args(ctx, args)  # the options are those of a run
        settings = self._settings(ctx, invocation, written)
        invocation.origins = {name: setting.origin for name, setting in settings.items()}
        set_elsewhere = {name: setting.value for name, setting in settings.items()}
        refuse_empty_paths(self.get_params(ctx), set_elsewhere, invocation.origins)
        invocation.as_json = invocation.as_json or settings_flag(settings, "as_json")
        invocation.debug = invocation.debug or settings_flag(settings, "debug")
        ctx.default_map = {
            name: list(setting.value) if isinstance(setting.value, tuple) else setting.value
            for name, setting in settings.items()
        }
        try:
            return super().parse_args(ctx, args)
        except typer.BadParameter as error:
            name = getattr(error.param, "name", None)
            if name is None or name not in settings:
                raise
            what = error.message.removeprefix("Value error, ")
            raise UsageError(f"{settings[name].origin}: {what}", remedy=_correction(what)) from None

    def _settings(self, ctx: Any, invocation: Invocation, written: Mapping[str, Any]) -> Settings:
        shapes = option_shapes(self.get_params(ctx))
        from_environment = environment_settings(shapes, invocation.environ)
        invocation.warnings += misspelt_variables(shapes, invocation.environ)
        invocation.as_json = invocation.as_json or settings_flag(from_environment, "as_json")
        layers = [from_environment, self._config(shapes, invocation, written.get("config"))]
        settings = merge(written, layers, modes=MODES, exclusive=EXCLUSIVE)
        for name, needed in NEEDS.items():
            if needed not in written and needed not in settings:
                settings.pop(name, None)
        modes = [name for name in MODES if name in written or settings_flag(settings, name)]
        if len(modes) != 1:
            return settings  # which is an error, and not the settings'
        return {name: setting for name, setting in settings.items() if has_place(name, modes[0])}

    def settings_elsewhere(self, ctx: Any, environ: Mapping[str, str]) -> list[Settings]:
        """What is set in the environment, and in the config file. Raises UsageError."""
        shapes = option_shapes(self.get_params(ctx))
        return [environment_settings(shapes, environ), self._config(shapes, Invocation(environ), None)]

    def _config(self, shapes: Sequence[OptionShape], invocation: Invocation, written: str | None) -> Settings:
        chosen = written or invocation.environ.get(_CONFIG_VARIABLE)
        path = Path(chosen).expanduser() if chosen else default_config(invocation.environ)
        config = read_config(path, chosen=bool(chosen)) if path is not None else None
        if config is None:
            return {}
        settings = config_settings(shapes, config.text, config.name, _NOT_IN_FILES)
        for secret in _SECRETS & set(settings) if config.shared else ():
            warning = f"warning: {settings[secret].origin} can be read by other users: chmod 600 {config.name}"
            invocation.warnings.append(warning)
        return settings

    def format_help(self, ctx: Any, formatter: Any) -> None:
        """The common options; all of them where the context says so."""
        shown_all = ctx.meta.get(ALL_OPTIONS)
        rare = [] if shown_all else [p for p in self.params if p.name in self.rare or _panel(p) in self.rare]
        for parameter in rare:
            parameter.hidden = True  # type: ignore[attr-defined]
        for parameter in self.params:
            if parameter.name in _COMPLETION:
                parameter.help = _COMPLETION[parameter.name]  # type: ignore[attr-defined]
        hide_types_of_flags(self.get_params(ctx))
        try:
            super().format_help(ctx, formatter)
        finally:
            for parameter in rare:
                parameter.hidden = False  # type: ignore[attr-defined]


ALL_OPTIONS = "ppsmoke.all_options"
"""In the context's `meta`: the help is to show every option."""


def _correction(what: str) -> str:
    needed = next((kind for kind in ("a whole number", "a number") if what.endswith(f"is not {kind}")), None)
    return "Correct it there." if needed is None else f"Set it to {needed} there."


def settings_flag(settings: Settings, name: str) -> bool:
    """Whether a flag is set there, and on."""
    return name in settings and settings[name].value is True


def option_shapes(parameters: Sequence[Any]) -> list[OptionShape]:
    """Every option that may come from elsewhere than the command line."""
    shapes = []
    for parameter in parameters:
        if parameter.name in _NOT_SETTINGS:
            continue
        name = max(parameter.opts, key=len).removeprefix("--")
        shapes.append(OptionShape(parameter.name, name, _kind(parameter)))
    return shapes


def _kind(parameter: Any) -> Kind:
    if parameter.is_flag:
        return Kind.FLAG
    if parameter.multiple:
        return Kind.TEXTS
    return Kind.NUMBER if parameter.type_descriptor.annotation in (int, float) else Kind.TEXT


def _panel(parameter: Any) -> str | None:
    return getattr(parameter, "rich_help_panel", None)


def given_options(context: typer.Context) -> dict[str, str]:
    """The options that the user gave, by parameter: each in its longest form, or the place where it was set."""
    origins = context.obj.origins if isinstance(context.obj, Invocation) else {}
    given = {}
    for parameter in context.command.params:
        name = str(parameter.name)
        source = context.get_parameter_source(name)
        if source is None or source.name == "DEFAULT" or context.params.get(name) is False:
            continue
        given[name] = origins[name] if source.name == "DEFAULT_MAP" else max(parameter.opts, key=len)
    return given


def with_origin(error: PpError, origins: Mapping[str, str]) -> PpError:
    """The error, saying where the option that it names was set, if that was not on the command line."""
    if not isinstance(error, UsageError):
        return error
    for name, origin in origins.items():
        option = f"--{name.replace('_', '-')}"
        if option in error.what.split() or (isinstance(error, BadStageCount) and name == "num_stages"):
            error.what = f"{origin}: {error.what}"
            break
    return error


def forget_variables(environ: Any, parameters: Sequence[Any]) -> None:
    """Take the options' variables out of this process's environment: its children must not mistake them for theirs,
    some of which are named alike."""
    for shape in option_shapes(parameters):
        environ.pop(shape.variable, None)
    environ.pop(_CONFIG_VARIABLE, None)
