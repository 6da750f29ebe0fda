"""What a claim leaves on disk."""

from pathlib import Path

import numpy as np
import pytest

from experiments.claims.framework.values import FILE, Point, Value, Values, ValuesError, read, write

ROW = Value("a, with comma", 'sys "x"', "cost", "h", 0.1 + 0.2, 1 / 3, 2 / 3, 7, 0.3, None, 1e-300, "a note")
POINT = Point("a, with comma", "x", "cost", 10.0, 1 / 3, 0.1, 0.7, -1e-17, 1e17)
VALUES = Values((ROW, Value("b", "y", "delay", "", np.float64(-0.0))), (POINT,), {"k": "10"})


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
    ("before", "after"), [('"group"', '"grup"'), ('"seeds": 1', '"seeds": "much"'), ("]", "")]
)
def test_a_file_that_was_spoilt_is_refused_by_name(tmp_path: Path, before: str, after: str) -> None:
    write(VALUES, tmp_path)
    path = tmp_path / FILE
    path.write_text(path.read_text().replace(before, after, 1))
    with pytest.raises(ValuesError, match=FILE):
        read(tmp_path)
    with pytest.raises(ValuesError, match="run the claim first"):
        read(tmp_path / "nothing")
