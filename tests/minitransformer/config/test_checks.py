"""Settings from files have the types of the configuration, and messages name them."""

from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Literal

import pytest

from minitransformer.config import ConfigError
from minitransformer.config.checks import COUNT, with_changes
from minitransformer.system.records import require_bounds


@dataclass(frozen=True)
class Core:
    seeds: int | None = None
    hard: bool = False


@dataclass(frozen=True)
class Fruit:
    name: str = "apple"
    colours: tuple[str, ...] = ()
    ripe: bool = True
    weight: float = 1.0
    place: Path = Path()
    taste: Literal["sweet", "sour"] = "sweet"
    core: Core = field(default_factory=Core)


@pytest.mark.parametrize(
    ("changes", "expected"),
    [
        ({"name": "two words"}, Fruit(name="two words")),
        ({"colours": ["red", "green"]}, Fruit(colours=("red", "green"))),
        ({"ripe": False}, Fruit(ripe=False)),
        ({"weight": -1e-9}, Fruit(weight=-1e-9)),
        ({"place": "a/b"}, Fruit(place=Path("a/b"))),
        ({"taste": "sour"}, Fruit(taste="sour")),
        ({"core": {"seeds": 1_000}}, Fruit(core=Core(seeds=1_000))),
        ({"core": {"seeds": None}}, Fruit()),
        ({"weight": 2}, Fruit(weight=2.0)),
    ],
)
def test_values_of_files_become_settings(changes: dict[str, Any], expected: Fruit) -> None:
    fruit = with_changes(Fruit(), changes)
    assert fruit == expected
    assert type(fruit.weight) is float


def test_a_part_keeps_the_settings_that_do_not_change() -> None:
    fruit = with_changes(Fruit(name="plum", core=Core(seeds=1)), {"core": {"hard": True}})
    assert fruit == Fruit(name="plum", core=Core(seeds=1, hard=True))


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"name": 3}, "basket.name must be a string; got 3"),
        ({"colours": "red"}, "basket.colours must be a list; got 'red'"),
        ({"colours": ["red", 3]}, "basket.colours[1] must be a string; got 3"),
        ({"ripe": 1}, "basket.ripe must be true or false; got 1"),
        ({"weight": "2"}, "basket.weight must be a number; got '2'"),
        ({"weight": True}, "basket.weight must be a number; got True"),
        ({"weight": 10**400}, "basket.weight is too large"),
        ({"place": []}, "basket.place must be a string; got []"),
        ({"taste": ["sour"]}, "basket.taste must be one of ('sweet', 'sour'); got ['sour']"),
        ({"core": 3}, "basket.core must be a table of settings; got 3"),
        ({"core": {"seeds": 1.5}}, "basket.core.seeds must be a whole number; got 1.5"),
        ({"core": {"seed": 1}}, "unknown key 'basket.core.seed'; did you mean 'basket.core.seeds'?"),
        ({"owner": 1}, "unknown key 'basket.owner'; known here: name, colours, ripe, weight, place, taste, core, size"),
    ],
)
def test_wrong_values_and_unknown_keys_are_named(changes: dict[str, Any], message: str) -> None:
    with pytest.raises(ConfigError) as caught:
        with_changes(Fruit(), changes, "basket.", ["size"])
    assert str(caught.value).startswith(message)


def test_a_count_is_at_least_one_and_fits_32_bits() -> None:
    for seeds in (1, 2**31 - 1):
        require_bounds(Core(seeds=seeds), {"seeds": COUNT}, ConfigError, "core.")
    for seeds in (0, 2**31):
        message = f"core.seeds must be at least 1 and less than 2,147,483,648; got {seeds}"
        with pytest.raises(ConfigError, match=message):
            require_bounds(Core(seeds=seeds), {"seeds": COUNT}, ConfigError, "core.")
