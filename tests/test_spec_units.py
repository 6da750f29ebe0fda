"""Human units: what is written is read back to the last bit."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from topologies import units

positive = st.floats(min_value=0.0, max_value=1e300, allow_nan=False, allow_infinity=False)


@given(positive)
def test_exact_texts_are_read_back_to_the_same_float(value: float) -> None:
    assert units.parse_rate(units.exact_rate(value)) == value
    assert units.parse_size(units.exact_size(value)) == value
    assert units.parse_duration(units.exact_duration(value)) == value


@given(st.floats(min_value=1e-200, max_value=1e200))
def test_exact_hazards_are_read_back_to_the_same_float(value: float) -> None:
    assert units.parse_per_time(units.exact_per_time(value)) == value


@pytest.mark.parametrize(
    ("text", "value"),
    [("1 Gbit/s", 125e6), ("12.5 MB/s", 12.5e6), ("8 bit/s", 1.0), ("1e3kbit/s", 125e3)],
)
def test_rates_are_bits_or_bytes_as_written(text: str, value: float) -> None:
    assert units.parse_rate(text) == value


def test_round_values_are_written_as_people_do() -> None:
    assert units.exact_rate(125e6) == "1 Gbit/s"
    assert units.exact_rate(25e6) == "200 Mbit/s"
    assert units.exact_size(24e9) == "24 GB"
    assert units.exact_duration(200e-6) == "200 us"
    assert units.exact_per_time(0.99 / 3600) == "0.99 /h"


@pytest.mark.parametrize(
    "text", ["", "1", "1 Gb/s", "-1 Mbit/s", "1e999 Gbit/s", "nan bit/s", "١ Mbit/s", "inf"]
)
def test_other_texts_are_refused_with_an_example(text: str) -> None:
    with pytest.raises(ValueError, match="a rate such as"):
        units.parse_rate(text)
