"""A user's own background traffic: a column a flow, a row an epoch.

    time,h1>h2,d1>core
    0,180 Mbit/s,9.7 Gbit/s
    3600,120 Mbit/s,9.8 Gbit/s

A flow runs from one node of the campus (host or switch) to another; `d1>core*41` says that it is made of 41 connections.
Rates are on the wire, bytes per second or with a unit, and hold until the next row; rows are evenly spaced and begin at 0.
"""

from __future__ import annotations

import csv
import difflib
import io

from experiments.inputs.traces.csv_rows import read_rows
from experiments.inputs.traces.timestamps import LATEST_S
from experiments.inputs.traces.trace import BackgroundTraffic
from topologies.dimension import Dimension
from topologies.errors import SpecError
from topologies.spec import Campus
from topologies.tables import shown_text
from topologies.units import plain

MOST_PARALLEL = 1_000_000
EVEN = 1e-6  # of an epoch: how far a row may be from its place
FASTEST_BYTES_PER_S = 1e15


def parse_background(text: str, campus: Campus) -> BackgroundTraffic:
    """The traffic in a CSV text. SpecError says line, column, value and what is allowed."""
    rows = list(read_rows(text, ("time",)))
    header = [name.strip() for name in next(filter(None, csv.reader(io.StringIO(text))))]
    columns = [name for name in header if name != "time"]
    nodes = [node.name for node in campus.nodes]
    flows, parallel = [], []
    for column in columns:
        path, _, many = column.partition("*")
        source, _, target = path.partition(">")
        for end in (source, target):
            if end not in nodes:
                near = difflib.get_close_matches(end, nodes, n=1)
                hint = f" (nearest: {near[0]})" if near else ""
                raise SpecError(
                    "line 1", shown_text(column), f"time, or SOURCE>TARGET with nodes of the campus{hint}"
                )
        if source == target:
            raise SpecError("line 1", shown_text(column), "a flow between two different nodes")
        if many and not (
            many.isascii() and many.isdigit() and len(many) < 8 and 1 <= int(many) <= MOST_PARALLEL
        ):
            raise SpecError(
                "line 1", shown_text(column), f"a whole number from 1 to {MOST_PARALLEL} after the *"
            )
        flows.append((source, target))
        parallel.append(int(many or 1))
    if not rows or not columns:
        raise SpecError("rows", len(rows), "at least one row, and one flow beside the column time")
    rates = tuple(
        tuple(row.quantity(column, Dimension.RATE, 0.0, FASTEST_BYTES_PER_S) for column in columns)
        for row in rows
    )
    times = [row.quantity("time", Dimension.DURATION, 0.0, LATEST_S) for row in rows]
    epoch_s = times[1] - times[0] if len(times) > 1 else LATEST_S
    for number, (row, at_s) in enumerate(zip(rows, times, strict=True)):
        if not epoch_s > 0.0 or abs(at_s - number * epoch_s) > EVEN * epoch_s:
            raise row.wrong("time", "evenly spaced times that begin at 0")
    return BackgroundTraffic(epoch_s, tuple(flows), rates, tuple(parallel))


def background_csv(traffic: BackgroundTraffic) -> str:
    """The text of a file that gives this traffic back."""
    out = io.StringIO()
    writer = csv.writer(out, lineterminator="\n")
    pairs = zip(traffic.flows, traffic.parallel, strict=True)
    names = [f"{source}>{target}" + (f"*{many}" if many > 1 else "") for (source, target), many in pairs]
    writer.writerow(["time", *names])
    for number, row in enumerate(traffic.rates_bytes_per_s):
        writer.writerow([plain(number * traffic.epoch_s), *map(plain, row)])
    return out.getvalue()
