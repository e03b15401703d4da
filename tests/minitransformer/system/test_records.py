"""Dataclasses that are read from JSON objects."""

import json
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest

from minitransformer.system.files import CorruptFileError
from minitransformer.system.records import read_object, read_record


@dataclass(frozen=True)
class Basket:
    name: str
    weight: float
    sizes: tuple[tuple[int, int], ...]
    eggs: list[int]
    price: float | None = None


FIELDS: dict[str, Any] = {"name": "A", "weight": 2, "sizes": [[1, 2], [3, 4]], "eggs": [5], "price": None}
BASKET = Basket("A", 2.0, ((1, 2), (3, 4)), [5])


def written(directory: Path, content: Any) -> Path:
    path = directory / "basket.json"
    path.write_text(json.dumps(content))
    return path


def test_an_object_becomes_a_record_of_the_annotated_types(tmp_path: Path) -> None:
    record = read_record(written(tmp_path, FIELDS), Basket)
    assert (record, type(record.weight)) == (BASKET, float)


def test_fields_may_be_missing_and_keys_unknown_only_on_request(tmp_path: Path) -> None:
    path = written(tmp_path, {name: value for name, value in FIELDS.items() if name != "price"})
    assert read_record(path, Basket, defaults={"price": 1.5}).price == 1.5
    with pytest.raises(CorruptFileError, match=r"missing or unknown: \['price'\]"):
        read_record(path, Basket)
    path = written(tmp_path, FIELDS | {"owner": 1})
    assert read_record(path, Basket, ignore_unknown=True) == BASKET
    with pytest.raises(CorruptFileError, match=r"name, weight, sizes, eggs, price; missing or unknown: \['owner'\]"):
        read_record(path, Basket)


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"sizes": [[1, 2, 3]]}, "sizes[0] must be a list of 2; got [1, 2, 3]"),
        ({"sizes": [[1, 2], [3, 9]]}, "sizes must be at least 0 and less than 9; got 9"),
        ({"eggs": [1, True]}, "eggs[1] must be a whole number; got True"),
        ({"price": -1}, "price must be at least 0 and less than 10; got -1.0"),
    ],
)
def test_messages_name_file_field_expected_got_remedy(tmp_path: Path, changes: dict[str, Any], message: str) -> None:
    path = written(tmp_path, FIELDS | changes)
    with pytest.raises(CorruptFileError) as caught:
        read_record(path, Basket, bounds={"sizes": (0, 9), "price": (0, 10)}, remedy="buy another")
    assert str(caught.value) == f"{path}: {message}; buy another"


@pytest.mark.parametrize("content", [[], None])
def test_other_content_is_no_record_and_an_empty_object(tmp_path: Path, content: Any) -> None:
    path = written(tmp_path, content)
    assert read_object(path) == read_object(tmp_path / "no.json") == {}
    with pytest.raises(CorruptFileError, match="expected an object with name, weight"):
        read_record(path, Basket, defaults=FIELDS)
