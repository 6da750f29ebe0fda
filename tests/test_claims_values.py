"""What a claim leaves on disk."""

from pathlib import Path

import pytest

from experiments.claims.framework.values import Point, Value, Values, ValuesError, read, write

ROW = Value("a, with comma", 'sys "x"', "cost", "h", 0.1 + 0.2, 1 / 3, 2 / 3, 7, 0.3, None, 1e-300, "a note")
POINT = Point("a, with comma", "x", "cost", 10.0, 1 / 3, 0.1, 0.7, -1e-17, 1e17)
VALUES = Values((ROW, Value("b", "y", "delay", "", -0.0)), (POINT,), {"k": "10"})


def test_what_is_written_is_read_back_to_the_bit(tmp_path: Path) -> None:
    write(VALUES, tmp_path / "deep" / "er")
    assert read(tmp_path / "deep" / "er") == VALUES


def test_a_value_that_is_not_there_is_refused_with_what_is() -> None:
    with pytest.raises(ValuesError, match="there are a, with comma, b"):
        VALUES.find("c", "y", "delay")
    with pytest.raises(ValuesError, match="of b there are y"):
        VALUES.find("b", "x", "delay")
    with pytest.raises(ValuesError, match="of b / y there are delay"):
        VALUES.find("b", "y", "cost")


@pytest.mark.parametrize(
    ("before", "after", "words"),
    [("group,", "grup,", "columns"), ("delay", "delay,,,,,,,,,,,,", "line 3"), ("-0.0", "much", "line 3")],
)
def test_a_file_that_was_spoilt_is_refused_with_its_place(
    tmp_path: Path, before: str, after: str, words: str
) -> None:
    write(VALUES, tmp_path)
    path = tmp_path / "values.csv"
    path.write_text(path.read_text().replace(before, after, 1))
    with pytest.raises(ValuesError, match=words):
        read(tmp_path)
