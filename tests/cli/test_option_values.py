"""Options from the environment and from a config file: what is read, what is refused and where, who wins."""

from __future__ import annotations

from pathlib import Path

import pytest

from ppsmoke.config_file import default_config, read_config
from ppsmoke.errors import UsageError
from ppsmoke.option_values import Kind, OptionShape, Setting, Settings, config_settings, environment_settings, merge

SHAPES = [
    OptionShape("seed", "seed", Kind.FLAG),
    OptionShape("vastai", "vastai", Kind.FLAG),
    OptionShape("as_json", "json", Kind.FLAG),
    OptionShape("num_stages", "num-stages", Kind.NUMBER),
    OptionShape("model", "model", Kind.TEXT),
    OptionShape("gpu", "gpu", Kind.TEXTS),
    OptionShape("ship", "ship", Kind.FLAG),
    OptionShape("package", "package", Kind.TEXT),
]


def parse(text: str) -> Settings:
    return config_settings(SHAPES, text, "my.toml", {"teardown": "it is no way to run"})


def values(settings: Settings) -> dict[str, object]:
    return {name: setting.value for name, setting in settings.items()}


def test_a_variable_is_named_like_its_option() -> None:
    environ = {"PP_NUM_STAGES": "5", "PP_JSON": "1", "PP_MODEL": "m", "PP_OTHER": "x", "PP_GPU": "RTX 4090, A100"}
    found = environment_settings(SHAPES, environ)
    assert values(found) == {"num_stages": "5", "as_json": True, "model": "m", "gpu": ("RTX 4090", "A100")}
    assert found["as_json"].origin == "PP_JSON"


@pytest.mark.parametrize(("text", "value"), [("1", True), ("True", True), ("on", True), ("0", False), ("no", False)])
def test_a_flag_in_the_environment_is_on_or_off(text: str, value: bool) -> None:
    assert environment_settings(SHAPES, {"PP_SEED": text})["seed"].value is value


def test_an_empty_variable_says_nothing_and_an_odd_flag_is_refused_by_name() -> None:
    assert environment_settings(SHAPES, {"PP_SEED": "", "PP_MODEL": ""}) == {}
    with pytest.raises(UsageError, match="PP_SEED: 'maybe'"):
        environment_settings(SHAPES, {"PP_SEED": "maybe"})


def test_a_config_file_has_a_key_for_each_option() -> None:
    found = parse('seed = true\nnum-stages = 3\n\nmodel = "a b"\ngpu = "x"\njson = false\n')
    assert values(found) == {"seed": True, "num_stages": "3", "model": "a b", "gpu": ("x",), "as_json": False}
    assert found["model"].origin == "my.toml line 4: model"
    assert values(parse('gpu = ["a", "b"]')) == {"gpu": ("a", "b")}


@pytest.mark.parametrize(
    ("line", "says"),
    [
        ("num-stages = ", "my.toml line 6: "),
        ('model = "open', "my.toml line 6: "),
        ("seed = true\nseed = true", "my.toml line 7: "),
        ("num_stages = 3", "my.toml line 6: num_stages is no option"),
        ("[run]\nseed = true", "my.toml line 6: run is no option"),
        ("teardown = true", "my.toml line 6: teardown has no place in a config file: it is no way to run"),
        ('num-stages = "3"', "my.toml line 6: num-stages is a number, not the text '3'"),
        ("num-stages = true", "my.toml line 6: num-stages is a number, not true"),
        ("model = 12345", "my.toml line 6: model is text in quotes, not that"),
        ("vastai = 1", "my.toml line 6: vastai is true or false, not the number 1"),
        ("gpu = [1]", "my.toml line 6: gpu is text in quotes, or a list of it, not a list"),
        ("gpu.name = 'x'", "my.toml line 6: gpu is text in quotes, or a list of it, not a table"),
        ("ship = 2020-01-01", "my.toml line 6: ship is true or false"),
        (f"num-stages = 0x{'f' * 5000}", "my.toml line 6: num-stages is a number that no option takes"),
        (f"num-stages = {'9' * 5000}", "my.toml has a value that no option takes"),
        (f"gpu = {'[' * 5000}", "my.toml has a value that no option takes"),
    ],
)
def test_what_is_wrong_in_a_config_file_is_named_with_its_line(line: str, says: str) -> None:
    # The text of several lines holds what looks like every key.
    before = '# mine\nmodel = """\nnum-stages = 7\nseed = 1\n"""\n'
    if line.startswith("model"):
        before = "#\n" * 5
    with pytest.raises(UsageError) as caught:
        parse(before + line)
    assert caught.value.what.startswith(says)


def test_a_misspelt_key_is_told_what_was_meant() -> None:
    with pytest.raises(UsageError) as caught:
        parse("num_stage = 3")
    assert caught.value.remedy == "Did you mean num-stages?"


def held(given: set[str], *layers: dict[str, str | bool]) -> dict[str, object]:
    settings = [
        {name: Setting(value, str(number)) for name, value in layer.items()} for number, layer in enumerate(layers)
    ]
    return values(merge(given, settings, modes=("seed", "vastai"), exclusive=(("ship", "package"),)))


def test_the_command_line_wins_over_the_environment_and_that_over_the_file() -> None:
    assert held({"model"}, {"model": "a", "num_stages": "3"}, {"num_stages": "4", "gpu": "x"}) == {
        "num_stages": "3",
        "gpu": "x",
    }


@pytest.mark.parametrize(
    ("given", "layers", "expected"),
    [
        ({"vastai"}, [{}, {"seed": True}], {}),
        (set(), [{"vastai": True}, {"seed": True}], {"vastai": True}),
        (set(), [{"seed": False}, {"vastai": True}], {"seed": False, "vastai": True}),
        (set(), [{}, {"seed": True, "vastai": True}], {"seed": True, "vastai": True}),
        ({"ship"}, [{"package": "p"}], {}),
        (set(), [{"package": "p"}, {"ship": True}], {"package": "p"}),
        (set(), [{"ship": False}, {"package": "p"}], {"ship": False, "package": "p"}),
    ],
)
def test_what_excludes_each_other_is_decided_by_the_stronger_source(
    given: set[str], layers: list[dict[str, str | bool]], expected: dict[str, object]
) -> None:
    assert held(given, *layers) == expected


@pytest.mark.parametrize(
    ("environ", "path"),
    [
        ({"XDG_CONFIG_HOME": "/c", "HOME": "/h"}, "/c/pp-smoke-run/config.toml"),
        ({"XDG_CONFIG_HOME": "relative", "HOME": "/h"}, "/h/.config/pp-smoke-run/config.toml"),
        ({"HOME": "/h"}, "/h/.config/pp-smoke-run/config.toml"),
    ],
)
def test_the_default_file_is_in_the_config_folder(environ: dict[str, str], path: str) -> None:
    assert default_config(environ) == Path(path)


def test_a_default_file_may_be_missing_and_a_chosen_one_may_not(tmp_path: Path) -> None:
    missing = tmp_path / "none" / "config.toml"
    assert read_config(missing, chosen=False) is None
    with pytest.raises(UsageError, match="cannot be read: No such file"):
        read_config(missing, chosen=True)
    with pytest.raises(UsageError, match="cannot be read: Is a directory"):
        read_config(tmp_path, chosen=False)


def test_a_file_without_end_is_refused() -> None:
    with pytest.raises(UsageError, match=r"/dev/zero is larger than 16\.0 MB"):
        read_config(Path("/dev/zero"), chosen=True)


def test_a_file_that_is_no_text_is_refused_with_the_line(tmp_path: Path) -> None:
    path = tmp_path / "config.toml"
    path.write_bytes(b"seed = true\nmodel = '\xff'\n")
    with pytest.raises(UsageError, match="line 2: this is no UTF-8 text"):
        read_config(path, chosen=False)


@pytest.mark.parametrize(("mode", "shared"), [(0o600, False), (0o640, True), (0o604, True)])
def test_who_may_read_the_file_is_known(tmp_path: Path, mode: int, shared: bool) -> None:
    path = tmp_path / "config.toml"
    path.write_text("seed = true\n")
    path.chmod(mode)
    config = read_config(path, chosen=True)
    assert config is not None
    assert config.shared is shared
