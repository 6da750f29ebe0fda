"""Wrong files and wrong command lines: each is refused with what is wrong, and none ends in a traceback.

Named mistakes first: (a file's text, the key that is named, part of what is allowed). Then files
with a line or some bytes wrong: `RECLAIMNET_FUZZ=20 RECLAIMNET_FUZZ_SEED=x` tries twenty times as many, others.
"""

from __future__ import annotations

import json
import os
import random
import re
import shutil
import signal
from collections.abc import Callable, Iterator
from dataclasses import replace
from functools import partial
from io import StringIO
from pathlib import Path
from typing import Any

import pytest
from rich.console import Console

from experiments.api import simulate
from experiments.cli.main import app
from experiments.cli.storm import replay as replay_storm
from experiments.inputs.job_file import load_job
from experiments.inputs.scenario import Scenario, dumps, load
from experiments.inputs.traces import load_trace, trace_of
from experiments.inputs.traces.paper_campus import paper_scenario
from experiments.inputs.traces.trace_file import TRACE, write_trace
from experiments.results.runs.folders import read_summary
from experiments.runtime import exit_status
from experiments.sweeps.plan import read_plan
from topologies import files
from topologies.errors import SpecError
from topologies.presets import three_tier

Rows = dict[str, tuple[str, str, str]]
CAMPUS = """
name = "tiny"
buildings = ["b"]
[gpu_models.m]
memory = "24 GB"
compute_capability = 8.6
[[switches]]
name = "core"
tier = "core"
[[hosts]]
name = "c"
role = "coordinator"
building = "b"
link_to = "core"
rate = "1 Gbit/s"
[[hosts]]
name = "h1"
building = "b"
gpu_model = "m"
link_to = "core"
rate = "1 Gbit/s"
"""
RUN = 'name = "x"\ncampus = "example:lab"\n'
JOB = 'steps = 3\nstep = "2 s"\npayload = "4 MB"\n'
HEADER = "vm,zone,machine_type,started_at,lifetime_h,preempted,load\n"
ROW = "a,z,m,2019-02-18T08:57:39.791-08:00,{hours},{preempted},idle\n"
EVENT = "time,host,event,notice\n"
ZONES = "time,a,b\n"
GAP = {"gap_seconds": 300}
TAKEN: dict[str, Any] = {"at_s": 5, "host": "h1"}
DRAWN: dict[str, Any] = {
    "name": "a", "payload_bytes": 9, "steps": 5, "step_s": 1, "dirty_fraction": 0, "memory_bytes": 0,
    "min_capability": 0, "loss_budget_s": 9,
}  # fmt: skip


def with_job(**changes: Any) -> dict[str, Any]:
    return {"owner_events": [], "arrivals": [{"at_s": 0, "job": DRAWN | changes}]}


def with_background(*flow: str, **changes: Any) -> dict[str, Any]:
    traffic = {"epoch_s": 5, "flows": [flow or ("h1", "h2")], "rates_bytes_per_s": [[1]], "parallel": [1]}
    return {"owner_events": [], "background": traffic | changes}


def trace(document: dict[str, Any]) -> str:
    return json.dumps({"arrivals": []} | document)


def spot(data: list[Any], gap_s: object = 300.0) -> str:
    return json.dumps({"metadata": {"gap_seconds": gap_s}, "data": data})


CAMPUSES: Rows = {
    "unknown key": (CAMPUS.replace("gpu_model =", "gpu_modell ="), "hosts.h1.gpu_model", "there is 'gpu_modell'"),
    "unknown host key": (
        CAMPUS.replace('name = "h1"', 'name = "h1"\nadress = "10.0.0.1"'),
        "hosts.h1.adress", "nearest: address",
    ),
    "unknown section": (CAMPUS + "[research]\nx = 1\n", "research", "allowed here"),
    "unknown role": (CAMPUS.replace('"coordinator"', '"coordinater"'), "hosts.c.role", "nearest: coordinator"),
    "unknown building": (CAMPUS.replace('building = "b"\nlink', 'building = "x"\nlink', 1), "hosts.c.building", "one of b"),
    "unknown tier": (CAMPUS.replace('tier = "core"', 'tier = "kern"'), "switches.core.tier", "access, distribution"),
    "unknown GPU": (CAMPUS.replace('gpu_model = "m"', 'gpu_model = "x"'), "hosts.h1.gpu_model", "'m'"),
    "rate without unit": (CAMPUS.replace('"1 Gbit/s"', "1000", 1), "hosts.c.rate", "with its unit"),
    "bad unit": (CAMPUS.replace('"1 Gbit/s"', '"1 Gb/s"', 1), "hosts.c.rate", "10 Gbit/s"),
    "zero rate": (CAMPUS.replace('"1 Gbit/s"', '"0 Gbit/s"', 1), "links.c-core.rate", "greater than 0"),
    "missing rate": (CAMPUS.replace('rate = "1 Gbit/s"', "", 1), "hosts.c.rate", "needed"),
    "misspelt needed key": (CAMPUS.replace("rate =", "rates =", 1), "hosts.c.rate", "there is 'rates'"),
    "missing name": (CAMPUS.replace('name = "tiny"', ""), "name", "needed"),
    "missing buildings": (CAMPUS.replace('buildings = ["b"]', ""), "buildings", "needed"),
    "buildings not texts": (CAMPUS.replace('["b"]', "[1]"), "buildings", "names of the buildings"),
    "missing hosts": (CAMPUS.partition("[[hosts]]")[0], "hosts", "at least one host"),
    "text for a number": (CAMPUS.replace("8.6", '"8.6"'), "gpu_models.m.compute_capability", "8.6"),
    "nan": (CAMPUS.replace("8.6", "nan"), "gpu_models.m.compute_capability", "8.6"),
    "true for a number": (CAMPUS.replace("8.6", "true"), "gpu_models.m.compute_capability", "8.6"),
    "huge integer": (CAMPUS.replace("8.6", "9" * 4000), "gpu_models.m.compute_capability", "8.6"),
    "huge hexadecimal": (CAMPUS.replace("8.6", "0x" + "f" * 9000), "gpu_models.m.compute_capability", "8.6"),
    "too many digits": (CAMPUS.replace("8.6", "9" * 5000), "line 22", "TOML"),
    "gpus true": (CAMPUS.replace('name = "h1"', 'name = "h1"\ngpus = true'), "hosts.h1.gpus", "whole number"),
    "gpus fraction": (CAMPUS.replace('name = "h1"', 'name = "h1"\ngpus = 1.5'), "hosts.h1.gpus", "whole number"),
    "gpus many": (CAMPUS.replace('name = "h1"', 'name = "h1"\ngpus = 2000'), "hosts.h1.gpus", "1024"),
    "gpus none": (CAMPUS.replace('name = "h1"', 'name = "h1"\ngpus = 0'), "hosts.h1.gpus", "1 to 1024"),
    "bad name": (CAMPUS.replace('"h1"', '"Host 1"'), "hosts", "lower-case"),
    "no name": (CAMPUS.replace('name = "h1"\n', ""), "hosts #2.name", "needed"),
    "bad address": (CAMPUS.replace('name = "h1"', 'name = "h1"\naddress = "10.0.0"'), "hosts.h1.address", "IPv4"),
    "foreign address": (CAMPUS.replace('name = "h1"', 'name = "h1"\naddress = "8.8.8.8"'), "hosts.h1.address", "10.0.0.0/8"),
    "address a number": (CAMPUS.replace('name = "h1"', 'name = "h1"\naddress = 10'), "hosts.h1.address", "IPv4"),
    "duplicate host": (CAMPUS + CAMPUS[CAMPUS.rindex("[[hosts]]") :], "hosts", "only once"),
    "duplicate key": (CAMPUS.replace('name = "h1"', 'name = "h1"\nname = "h2"'), "line 18", "TOML"),
    "host not a table": ("hosts = [1]\n" + CAMPUS.partition("[[hosts]]")[0], "hosts #1", "a table"),
    "hosts not a list": ("hosts = 3\n" + CAMPUS.partition("[[hosts]]")[0], "hosts", "list of tables"),
    "gpu_models not a table": ("gpu_models = 3\n" + CAMPUS.replace("[gpu_models.m]", "[x]"), "gpu_models", "a table"),
    "loop": (CAMPUS + '[[links]]\nbetween = ["h1", "core"]\nrate = "1 Gbit/s"\n', "links.h1-core", "tree"),
    "self link": (CAMPUS + '[[links]]\nbetween = ["h1", "h1"]\nrate = "1 Gbit/s"\n', "links.h1-h1", "different"),
    "three ends": (CAMPUS + '[[links]]\nbetween = ["a", "b", "c"]\nrate = "1 Gbit/s"\n', "links #1.between", "two names"),
    "dangling link": (CAMPUS.replace('link_to = "core"', 'link_to = "cor"', 1), "links.c-cor", "name of a host or a switch"),
    "unreachable host": (CAMPUS.replace('link_to = "core"\nrate = "1 Gbit/s"\n', "", 1), "links", "cut off"),
    "two coordinators": (
        CAMPUS.replace('name = "h1"', 'name = "h1"\nrole = "coordinator"').replace('gpu_model = "m"', ""),
        "hosts.*.role", "exactly one",
    ),
    "coordinator with GPU": (
        CAMPUS.replace('role = "coordinator"', 'role = "coordinator"\ngpus = 2'),
        "hosts.c.gpus", "no GPUs",
    ),
    "most lost": (CAMPUS + "[research_reserve]\nmost_lost = -0.1\n", "research_reserve.most_lost", "0 to 1"),
    "beta 2": (CAMPUS + "[research_reserve]\nbeta = 2\n", "research_reserve.beta", "0 to 1"),
    "loss 1": (CAMPUS.replace('rate = "1 Gbit/s"', 'rate = "1 Gbit/s"\nloss = 1', 1), "links.c-core.loss", "less than 1"),
    "negative delay": (
        CAMPUS.replace('rate = "1 Gbit/s"', 'rate = "1 Gbit/s"\ndelay = "-1 s"', 1),
        "hosts.c.delay", "duration",
    ),
    "group without switch": (
        CAMPUS + '[[groups]]\nprefix = "x"\ncount = 2\nbuilding = "b"\ngpu_model = "m"\n',
        "groups #1.link_to", "needed",
    ),
    "group of none": (
        CAMPUS + '[[groups]]\nprefix = "x"\ncount = 0\nbuilding = "b"\nlink_to = "core"\n',
        "groups #1.count", "1 to",
    ),
    "bad TOML": (CAMPUS + "rate '1'\n", "line 22", "TOML"),
    "unclosed": (CAMPUS + "x = [1,\n", "line 23", "TOML"),
    "nested": ("a = " + "[" * 5000, "TOML", "nested"),
    "empty": ("", "name", "needed"),
}  # fmt: skip

SCENARIOS: Rows = {
    "unknown section": (RUN + "[queues]\nx = 1", "queues", "nearest: queue"),
    "unknown key": (RUN + "[queue]\ntarget_dealy = '1 s'", "queue.target_dealy", "nearest: target_delay"),
    "no unit": (RUN + "[queue]\ntarget_delay = 90", "queue.target_delay", "with its unit"),
    "zero": (RUN + "[queue]\ntarget_delay = '0 s'", "queue.target_delay", "greater than 0"),
    "infinite where finite": (RUN + "[queue]\ntarget_delay = 'inf'", "queue.target_delay", "duration"),
    "k below 1": (RUN + "[queue]\non_demand_cost = 0.5", "queue.on_demand_cost", "at least 1"),
    "fraction for a whole": (RUN + "[queue]\nlevel_window = 1.5", "queue.level_window", "whole number"),
    "enforcement": (RUN + "[protocol]\nenforcement = 'pase'", "protocol.enforcement", "nearest: pace"),
    "congestion": (RUN + "[protocol]\ncongestion_control = 'vegas'", "protocol.congestion_control", "bbr, cubic"),
    "beta": (RUN + "[protocol]\ncheckpoint_share = 1.5", "protocol.checkpoint_share", "at most 1"),
    "a lease of nothing": (RUN + "[protocol]\nlease = '1 ms'", "protocol.lease", "at least 0.01"),
    "no prior": (RUN + "[protocol]\nprior_hazard = '0 /d'", "protocol.prior_hazard", "greater than 0"),
    "no bytes": (RUN + "[scale]\nbytes = 1e-12", "scale.bytes", "less than one byte"),
    "k_min": (RUN + "[protocol]\nk_min = 0", "protocol.k_min", "1 to"),
    "law missing": (RUN + "[jobs]\npayload = { median = '1 GB' }", "jobs.payload.law", "one of deterministic"),
    "law unknown": (RUN + "[jobs]\npayload = { law = 'pareto' }", "jobs.payload.law", "lognormal"),
    "law of other unit": (RUN + "[jobs]\npayload = { law = 'exponential', mean = '1 s' }", "jobs.payload.mean", "a size"),
    "law parameter": (
        RUN + "[jobs]\npayload = { law = 'lognormal', median = '1 GB', sigma = 0 }",
        "jobs.payload.sigma", "0.001",
    ),
    "law limits": (
        RUN + "[jobs]\npayload = { law = 'exponential', mean = '1 GB', minimum = '3 GB', maximum = '2 GB' }",
        "jobs.payload.minimum", "at most the maximum",
    ),
    "law empty": (
        RUN + "[jobs]\npayload = { law = 'exponential', mean = '1 kB', minimum = '3 GB' }",
        "jobs.payload.minimum", "some of its weight",
    ),
    "law extra": (
        RUN + "[jobs]\npayload = { law = 'exponential', mean = '1 GB', sigma = 1 }",
        "jobs.payload.sigma", "no key of this name",
    ),
    "law not a table": (RUN + "[jobs]\npayload = 3", "jobs.payload", "a table"),
    "no job fits": (
        RUN + "[jobs]\nmemory = { law = 'uniform', mean = '90 GB', spread = 0.1 }",
        "jobs.memory.maximum", "largest volunteer GPU",
    ),
    "capability": (RUN + "[jobs]\nmin_capabilities = [9.9]", "jobs.min_capabilities", "some volunteer GPU"),
    "capabilities": (RUN + "[jobs]\nmin_capabilities = ['a']", "jobs.min_capabilities", "list of at least one"),
    "too many jobs": (
        RUN + "[jobs]\ninterarrival = { law = 'exponential', mean = '1 us' }",
        "jobs.interarrival", "2000000 jobs",
    ),
    "too many reclaims": (RUN + "[owners]\nhazard = '1000000 /s'", "owners.hazard", "2000000 reclaims"),
    "share": (RUN + "[owners]\nemergency_share = 42", "owners.emergency_share", "at most 1"),
    "day start": (RUN + "[owners]\nday_start = '25 h'", "owners.day_start", "less than a day"),
    "peak backwards": (RUN + "[owners]\npeaks = [{ start = '2 h', end = '1 h' }]", "owners.peaks.end", "later than the start"),
    "peaks overlap": (
        RUN + "[owners]\npeaks = [{ start = '2 h', end = '4 h' }, { start = '3 h', end = '5 h' }]",
        "owners.peaks", "in order",
    ),
    "script host": (RUN + "[owners]\nscript = [{ at = '1 s', host = 'h9' }]", "owners.script", "desk1"),
    "script kind": (
        RUN + "[owners]\nscript = [{ at = '1 s', host = 'desk1', kind = 'steal' }]",
        "owners.script #1.kind", "reclaim, return",
    ),
    "return first": (
        RUN + "[owners]\nscript = [{ at = '1 s', host = 'desk1', kind = 'return' }]",
        "owners.script.desk1", "hosts begin lent",
    ),
    "loyal": (RUN + "[owners]\nloyal = ['coord']", "owners.loyal", "desk1"),
    "loyal twice": (RUN + "[owners]\nloyal = ['desk1', 'desk1']", "owners.loyal", "only once"),
    "flow": (RUN + "[[research]]\nsource = 'desk1'\ntarget = 'desk9'", "research.desk1-desk9", "desk1"),
    "flow to itself": (RUN + "[[research]]\nsource = 'desk1'\ntarget = 'desk1'", "research", "two different"),
    "flow rate": (RUN + "[[research]]\nsource = 'desk1'\ntarget = 'desk2'\nrate = 'fast'", "research #1.rate", "or \"greedy\""),
    "scale": (RUN + "[scale]\nbytes = 0", "scale.bytes", "a number from 1e-12 to 1e+12"),
    "scale key": (RUN + "[scale]\nspeed = 2", "scale.speed", "bytes, time"),
    "seed": ("seed = -1\n" + RUN, "seed", "whole number"),
    "duration": ("duration = '0 s'\n" + RUN, "duration", "greater than 0"),
    "no campus": ('name = "x"', "campus", "needed"),
    "campus missing": ('name = "x"\ncampus = "none.toml"', "file", "does not exist"),
    "campus number": ('name = "x"\ncampus = 3', "campus", "a table"),
    "level above its most": (RUN + "[queue]\nlevel_start = 9\n", "queue.level_start", "at most level_max, 8"),
    "a step of nothing": (RUN + '[queue]\nlevel_step = "0 /h"\n', "queue.level_step", ""),
    "no such policy": (RUN + '[protocol]\npolicy = "nosuch"\n', "protocol.policy", "one of slurm-pr, "),
    "too many steps": (RUN + '[jobs]\nstep = "1e-300 s"\n', "jobs.step", "at most 1e+09 steps in a job"),
    "hardly a byte": (RUN + "[scale]\nbytes = 1e-250\n", "scale.bytes", "a number from 1e-12 to 1e+12"),
}  # fmt: skip

JOBS: Rows = {
    "steps": ("", "steps", ""),
    "stepz": (JOB + "stepz = 3\n", "stepz", ""),
    "steps, ": (JOB.replace("3", "0"), "steps", ""),
    "steps,  #2": (JOB.replace("3", "3.5"), "steps", ""),
    "step": (JOB.replace("2 s", "0 s"), "step", ""),
    "step, ": (JOB.replace("2 s", "soon"), "step", ""),
    "payload": (JOB.replace("4 MB", "0 B"), "payload", ""),
    "payload, ": (JOB.replace("4 MB", "2e9 GB"), "payload", ""),
    "name": (JOB + 'name = "../../etc"\n', "name", ""),
    "name, name": (JOB + 'name = ""\n', "name", "name"),
    "params.x": (JOB + "[params]\nx = [1]\n", "params.x", ""),
    "params": (JOB + "params = 3\n", "params", ""),
    "line 1": ("steps = \n", "line 1", "line 1"),
}  # fmt: skip

RECORDS: Rows = {
    "empty": ("", "content", "spot trace"),
    "prose": ("hello there", "content", "spot trace"),
    "broken JSON": ('{"metadata": {,', "line 1, column 15", "JSON"),
    "deep JSON": ("[" * 100_000, "JSON", "depth"),
    "JSON list": ("[1, 2]", "JSON", "gap_seconds"),
    "no metadata": (json.dumps({"data": [1, 2]}), "JSON", "metadata"),
    "no data": (json.dumps({"metadata": GAP}), "JSON", "data"),
    "no gap": (json.dumps({"metadata": {}, "data": [1, 2]}), "metadata.gap_seconds", "from 0.001 to"),
    "gap 0": (spot([1, 2], 0), "metadata.gap_seconds", "from 0.001 to"),
    "gap tiny": (spot([4, 1], 1e-320), "metadata.gap_seconds", "from 0.001 to"),
    "gap text": (spot([1, 2], "5"), "metadata.gap_seconds", "seconds"),
    "gap NaN": (spot([1, 2], float("nan")), "metadata.gap_seconds", "seconds"),
    "gap huge": (spot([1, 2], 1e300), "metadata.gap_seconds", "to 2.592e+06"),
    "gap huger": (spot([1, 2], 10**400), "metadata.gap_seconds", "to 2.592e+06"),
    "digits": ('{"metadata": {"gap_seconds": ' + "9" * 5000 + '}, "data": [1, 2]}', "JSON", "length"),
    "data text": (json.dumps({"metadata": GAP, "data": "1"}), "data", "list"),
    "data short": (spot([3], 300), "data", "at least two"),
    "negative": (spot([1, 2, -3], 300), "data[2]", "0 to 100000"),
    "fraction": (spot([1, 2.5], 300), "data[1]", "whole number"),
    "NaN": (spot([float("nan"), 1], 300), "data[0]", "whole number"),
    "true": (spot([True, 1], 300), "data[0]", "whole number"),
    "null": (spot([None, 1], 300), "data[0]", "whole number"),
    "huge": (spot([1, 10**30], 300), "data[1]", "whole number"),
    "zeros": (spot([0, 0], 300), "data", "above 0"),
    "no column": ("vm,lifetime_h,preempted\n", "line 1", "column started_at"),
    "no rows": (HEADER, "rows", "at least one"),
    "short row": (HEADER + "a,b\n", "line 2", "7 fields"),
    "lifetime": (HEADER + ROW.format(hours="x", preempted=1), "line 2, lifetime_h", "0 to 100000"),
    "negative life": (HEADER + ROW.format(hours=-1, preempted=1), "line 2, lifetime_h", "0 to 100000"),
    "NaN life": (HEADER + ROW.format(hours="nan", preempted=1), "line 2, lifetime_h", "hours"),
    "huge life": (HEADER + ROW.format(hours="1e308", preempted=1), "line 2, lifetime_h", "hours"),
    "zero lives": (HEADER + ROW.format(hours=0, preempted=1), "rows", "above 0"),
    "preempted": (HEADER + ROW.format(hours=1, preempted="yes"), "line 2, preempted", "0 or 1"),
    "date": (HEADER + "a,b,c,yesterday,1,1,idle\n", "line 2, started_at", "date and time"),
    "quote": (HEADER + 'a,"b\n', "line 2", "comma-separated"),
    "event host": (EVENT + "1,h99,reclaim,\n", "line 2, host", "nearest: h9"),
    "event kind": (EVENT + "1,h2,steal,\n", "line 2, event", "reclaim, emergency, return"),
    "event time": (EVENT + "soon,h2,reclaim,\n", "line 2, time", "number of seconds"),
    "event NaN": (EVENT + "nan,h2,reclaim,\n", "line 2, time", "seconds"),
    "event negative": (EVENT + "-1,h2,reclaim,\n", "line 2, time", "from 0"),
    "event huge": (EVENT + "1e300,h2,reclaim,\n", "line 2, time", "1e+09"),
    "event huge days": (EVENT + "999999 d,h2,reclaim,\n", "line 2, time", "1e+09"),
    "unordered": (EVENT + "5,h2,reclaim,\n4,h3,reclaim,\n", "line 3, time", "row before"),
    "twice": (EVENT + "5,h2,reclaim,\n6,h2,reclaim,\n", "line 3, event", "reclaimed already"),
    "return first": (EVENT + "5,h2,return,\n", "line 2, event", "h2 is lent"),
    "return early": (EVENT + "5,h2,reclaim,60\n6,h2,return,\n", "line 3, time", "65 s"),
    "notice of return": (EVENT + "5,h2,reclaim,\n6,h2,return,3\n", "line 3, notice", "none"),
    "notice of emergency": (EVENT + "5,h2,emergency,3\n", "line 2, notice", "none"),
    "no events": (EVENT, "rows", "at least one event"),
    "no notice column": ("time,host,event\n", "line 1", "column notice"),
    "count": (ZONES + "0,1,1\n5,1,-1\n", "line 3, b", "0 to 100000"),
    "count fraction": (ZONES + "0,1,1\n5,1.5,1\n", "line 3, a", "whole number"),
    "order": (ZONES + "5,1,2\n4,1,1\n", "line 3, time", "row before"),
    "one row": (ZONES + "0,1,1\n", "rows", "two rows"),
    "one moment": (ZONES + "0,1,1\n0,1,2\n", "rows", "0.001 s apart"),
    "one moment, nearly": (ZONES + "0,1,1\n1e-320,1,2\n", "rows", "0.001 s apart"),
    "zero counts": ("time,a\n0,0\n5,0\n", "rows", "above 0"),
    "milliseconds": (ZONES + "1693094407001,1,1\n1693094707001,1,0\n", "line 2, time", "to 1e+10"),
    "mixed times": (ZONES + "0,1,1\n2023-08-01,1,0\n", "line 3, time", "seconds, as in the rows before"),
    "no names": ("0,4\n300,1\n", "content", "a line of names"),
    "column twice": ("time,host,event,notice,time\n", "line 1", "each column once"),
}  # fmt: skip

EVENTS: Rows = {
    "date after seconds": (EVENT + "5,h1,emergency,\n2026-03-02,h2,emergency,\n", "line 3, time", "seconds, as"),
    "seconds after date": (EVENT + "2026-03-02,h1,emergency,\n5,h2,emergency,\n", "line 3, time", "a date, as"),
    "offset missing": (EVENT + "2026-03-02T01:00Z,h1,emergency,\n2026-03-02T02:00,h2,emergency,\n", "line 3, time", "offset"),
    "no date": (EVENT + "2026-02-30,h1,emergency,\n", "line 2, time", "a date such as"),
    "earlier date": (EVENT + "2026-03-02T05:00,h1,emergency,\n2026-03-01,h2,emergency,\n", "line 3, time", "a date from"),
    "away later": (EVENT + "5,h1,away,\n", "line 2, time", "from the start"),
    "away twice": (EVENT + "0,h1,away,\n0,h1,away,\n", "line 3, event", "has a row already"),
    "away, then taken": (EVENT + "0,h1,away,\n9,h1,emergency,\n", "line 3, event", "a return"),
    "away with notice": (EVENT + "0,h1,away,5\n", "line 2, notice", "none"),
    "notice text": (EVENT + "0,h1,reclaim,soon\n", "line 2, notice", "number of seconds"),
    "notice negative": (EVENT + "0,h1,reclaim,-3\n", "line 2, notice", "from 0"),
}  # fmt: skip

TRACES: Rows = {
    "host": (trace({"owner_events": [TAKEN | {"host": "h44"}]}), "trace", "it has a host h44; nearest: h4"),
    "time": (trace({"owner_events": [TAKEN | {"at_s": "soon"}]}), "owner_events[0].at_s", ""),
    "negative": (trace({"owner_events": [TAKEN | {"at_s": -1}]}), "event of h1.at", ""),
    "key": (trace({"owner_events": [TAKEN | {"notice": 5}]}), "owner_events[0].notice", ""),
    "twice": (trace({"owner_events": [TAKEN, TAKEN | {"at_s": 6}]}), "owner_events.h1", "hosts begin lent"),
    "section": (trace({"owner_events": [], "job": []}), "trace", "unknown field `job`"),
    "kind": (trace({"owner_events": [TAKEN | {"kind": "steal"}]}), "event of h1.kind", "one of reclaim, return"),
    "payload": (trace(with_job(payload_bytes="big")), "arrivals[0].job.payload_bytes", ""),
    "no payload": (trace(with_job(payload_bytes=0)), "job a.payload_bytes", ""),
    "steps": (trace(with_job(steps=2.5)), "arrivals[0].job.steps", ""),
    "step": (trace(with_job(step_s=0)), "job a.step", ""),
    "name": (trace(with_job(name="")), "job", "1 to 64"),
    "strange name": (trace(with_job(name="a b")), "job", "letters, digits"),
    "job's key": (trace(with_job(memory=1)), "arrivals[0].job.memory", ""),
    "no node": (trace(with_background("h1", "h99")), "background.flows", "nodes of the campus"),
    "to itself": (trace(with_background("h1", "h1")), "background.flows", "different"),
    "parallel": (trace(with_background(parallel=[0])), "background.parallel", ""),
    "rate": (trace(with_background(rates_bytes_per_s=[["fast"]])), "background.rates_bytes_per_s[0][0]", ""),
    "rates": (trace(with_background(rates_bytes_per_s=[[1, 2]])), "background.rates[0]", "one rate a flow"),
    "epoch": (trace(with_background(epoch_s=0)), "background.epoch", ""),
}  # fmt: skip

STORMS: Rows = {
    "verb": ("campus hosts=2\n1 dance h1", "verb", ""),
    "1 kill h3": ("campus hosts=2\n1 kill h3", "1 kill h3", ""),
    "1 kill *": ("campus hosts=2\n1 kill *", "1 kill *", "a host"),
    "1 pause h1": ("campus hosts=2\n1 pause h1", "1 pause h1", "arguments"),
    "mine.txt:2": ("campus hosts=2\nsoon kill h1", "mine.txt:2", "a time"),
    "script:2, at least 0": ("campus hosts=2\n-1 kill h1", "mine.txt:2", "at least 0"),
    "campus": ("campus hots=2", "campus", ""),
    "campus hosts": ("campus hosts=two", "campus hosts", "whole number"),
    "campus mix": ("campus mix=gold", "campus mix", ""),
    "policy": ("campus hosts=2\nsettings policy=none", "policy", ""),
    "settings": ("campus hosts=2\nsettings lease=2", "settings", ""),
    "settings lease_s": ("campus hosts=2\nsettings lease_s=long", "settings lease_s", ""),
    "1 fail h1 dancing 2": ("campus hosts=2\n1 fail h1 dancing 2", "1 fail h1 dancing 2", ""),
    "1 repeat h1 Hello": ("campus hosts=2\n1 repeat h1 Hello", "1 repeat h1 Hello", ""),
    "verb, ": ("campus hosts=2\n1 upon Hello h1 dance h1", "verb", ""),
    "1 upon Hello h9 kill h1": ("campus hosts=2\n1 upon Hello h9 kill h1", "1 upon Hello h9 kill h1", ""),
    "1 upon Hello h1 after=x kill h1": (
        "campus hosts=2\n1 upon Hello h1 after=x kill h1",
        "1 upon Hello h1 after=x kill h1", "after=SECONDS",
    ),
    "0 start h9": ("campus hosts=2\n0 start h9", "0 start h9", ""),
    "0 submit a steps=0": ("campus hosts=2\n0 submit a steps=0", "0 submit a steps=0", "steps"),
    "0 submit a payload=nan": ("campus hosts=2\n0 submit a payload=nan", "0 submit a payload=nan", ""),
    "0 submit a draw=2": ("campus hosts=2\n0 submit a draw=2", "0 submit a draw=2", "draw"),
    "0 clock h1 0 nan": ("campus hosts=2\n0 clock h1 0 nan", "0 clock h1 0 nan", "a rate"),
    "campus leave": ("campus hosts=2 leave=nan", "campus leave", ""),
    "heartbeat_s": ("campus hosts=2\nsettings heartbeat_s=0", "settings", ""),
    "protocol.lease": ("campus hosts=2\nsettings lease_s=nan", "protocol.lease", ""),
    "queue.learner": ("campus hosts=2\nsettings learner=nobody", "queue.learner", ""),
    "campus switch_s": ("campus hosts=2 switch_s=-1", "campus switch_s", ""),
}  # fmt: skip

NINE, FOUR = (
    Scenario("x", three_tier(hosts, 1 + hosts % 2), duration_s=s) for hosts, s in ((9, 3000.0), (4, 1e9))
)
# the name of the file, its reader, what may be wrong
READERS: dict[str, tuple[str, Callable[[Path], object], Rows]] = {
    "campus": ("mine.toml", files.load, CAMPUSES),
    "scenario": ("mine.toml", load, SCENARIOS),
    "job": ("mine.toml", load_job, JOBS),
    "record": ("mine.csv", lambda path: load_trace(path, NINE), RECORDS | EVENTS),
    "trace": (TRACE, lambda path: load_trace(path, FOUR), TRACES),
    "storm": ("mine.txt", partial(replay_storm, Console(file=StringIO())), STORMS),
}


@pytest.mark.parametrize(
    ("kind", "case"), [(kind, case) for kind, (*_, rows) in READERS.items() for case in rows]
)
def test_a_mistake_in_a_file_is_named_with_what_is_allowed(kind: str, case: str, tmp_path: Path) -> None:
    name, read, rows = READERS[kind]
    text, key, allowed = rows[case]
    (tmp_path / name).write_text(text)
    with pytest.raises(SpecError) as caught:
        read(tmp_path / name)
    assert caught.value.key.removeprefix(f"{tmp_path}/") == key and allowed in caught.value.allowed, (
        caught.value
    )
    assert str(caught.value).startswith(str(tmp_path / name)) and len(str(caught.value)) < 900


def test_a_syntax_error_shows_the_line(tmp_path: Path) -> None:
    (tmp_path / "mine.toml").write_text('name = "x"\nrate "1 Gbit/s"\n')
    with pytest.raises(SpecError) as caught:
        files.load(tmp_path / "mine.toml")
    assert (caught.value.key, caught.value.value) == ("line 2", 'rate "1 Gbit/s"')


def test_what_is_no_readable_text_file_is_refused(tmp_path: Path) -> None:
    binary, huge = tmp_path / "binary.toml", tmp_path / "huge.toml"
    binary.write_bytes(b'name = "x"\n\xff\xfe\x00')
    huge.write_bytes(b"#" * (9 << 20))
    loop = tmp_path / "loop.toml"
    loop.symlink_to(loop)
    os.mkfifo(tmp_path / "pipe.toml")
    cases = {
        binary: "not binary",
        huge: "at most 8 MiB",
        tmp_path: "not a regular file",
        tmp_path / "none.toml": "does not exist",
        tmp_path / "pipe.toml": "not a regular file",
        Path("/dev/zero"): "not a regular file",
        Path("a\0b"): "campus file",
        tmp_path / ("x" * 300): "campus file",
        loop: "campus file",
    }
    for path, message in cases.items():
        with pytest.raises(SpecError) as caught:
            files.load(path)
        assert message in str(caught.value), (path, caught.value)
        assert path.name in str(caught.value) or "\0" in path.name


# ---------------------------------------------------------------- a line or some bytes at random

TIMES = int(os.environ.get("RECLAIMNET_FUZZ", "1"))
FUZZ_SEED = os.environ.get("RECLAIMNET_FUZZ_SEED", "14")
A_KIND = 60
EXAMPLES = Path(__file__).parents[1] / "docs" / "examples"
LAB = load("example:lab")
VALUES = (
    *("0", "-1", "1e400", "nan", "-inf", "inf", "true", '""', '"x"', "[]", "{}", "[1]", "99999999999999999999", "1e-320"),
    *('"0 s"', '"-5 s"', '"5 parsec"', '"inf"', '"\\u0000"', '[["a"]]', '"desk1"', '"coord"', '"1e-300 s"', "0x10", "1 h", "h1"),
    *('"algorithm1"', "1979-05-27", "2023-13-01", "null", "1e15", "-0.0", "desk1", "9" * 400, "٣", "é", ",", "\n", "\x00", ""),
    *('{ law = "exponential" }', '{ law = "gamma", mean = "1 s", shape = 0 }', '{ law = "uniform", mean = "1 s", spread = 2 }'),
)  # fmt: skip


def one_line_wrong(text: str, draw: random.Random) -> str:
    """One line of a file with another value, doubled, left out, elsewhere, or with a character that does not belong there."""
    lines = text.splitlines()
    place = draw.choice([number for number, line in enumerate(lines) if line.strip()])
    line = lines[place]
    match draw.randrange(5):
        case 0:
            lines.insert(place, draw.choice(lines))
        case 1:
            del lines[place]
        case 2:
            column = draw.randrange(len(line))
            lines[place] = line[:column] + draw.choice('"[]{}=,\x00é#.<>\ufeff\u2028') + line[column:]
        case 3:
            lines.insert(draw.randrange(len(lines)), lines.pop(place))
        case _:
            found = draw.choice(
                list(re.finditer(r"[0-9.]+|\"[^\"]*\"|[a-z_]+", line)) or [re.match("", line)]
            )
            assert found is not None
            lines[place] = line[: found.start()] + draw.choice(VALUES) + line[found.end() :]
    return "\n".join(lines) + "\n"


def some_bytes_wrong(data: bytes, draw: random.Random) -> bytes:
    """Cut off, flipped, or with bytes that are no text."""
    place = draw.randrange(len(data))
    match draw.randrange(3):
        case 0:
            return data[:place]
        case 1:
            return data[:place] + bytes([data[place] ^ 1 << draw.randrange(8)]) + data[place + 1 :]
        case _:
            return data[:place] + draw.randbytes(3) + data[place:]


def example(name: str, folder: Path) -> str:
    """Return an example of the documentation; those that it names lie in the folder."""
    shutil.copytree(EXAMPLES, folder, dirs_exist_ok=True)
    return (EXAMPLES / name).read_text()


def a_trace(folder: Path) -> str:
    scenario = replace(LAB, background=paper_scenario(days=0.1).background)
    write_trace(folder, scenario, trace_of(scenario, ()))
    return (folder / TRACE).read_text()


def a_summary(folder: Path) -> str:
    simulate(replace(LAB, duration_s=60.0)).write(folder)
    text = (folder / "summary.json").read_text()
    return text if text.count("\n") > 9 else text.replace(",", ",\n")


def of_owners(path: Path) -> object:
    return load_trace(path, LAB)


STORM = Path(__file__).parent / "scenarios" / "better_copy_is_taken_up_when_its_holder_returns.txt"
OWNERS = "time,host,event,notice\n0,desk3,away,\n20 min,desk1,reclaim,3 min\n40 min,desk2,emergency,\n"
LIVES = "".join(f"2019-02-18T{n % 24:02}:00:00Z,{1 + n % 5},{n % 2}\n" for n in range(40))
# a right file, and its reader
KINDS: dict[str, tuple[Callable[[Path], str], Callable[[Path], object]]] = {
    "scenario": (lambda _: dumps(LAB), lambda path: trace_of(load(path), ())),
    "scenario by hand": (partial(example, "evening.toml"), load),
    "campus": (lambda _: files.dumps(three_tier(5, 2)), files.load),
    "job": (partial(example, "counting.toml"), load_job),
    "program": (partial(example, "adding.toml"), load_job),
    "sweep": (partial(example, "sweep.toml"), lambda path: read_plan(str(path))),
    "owners' events": (lambda _: OWNERS, of_owners),
    "counts": (lambda _: spot([int(n) for n in "32131201" * 9], 600).replace(",", ",\n"), of_owners),
    "counts as CSV": (lambda _: ZONES + "".join(f"{600 * n},{n % 4},1\n" for n in range(30)), of_owners),
    "lifetimes": (lambda _: f"started_at,lifetime_h,preempted\n{LIVES}", of_owners),
    "trace": (a_trace, of_owners),
    "storm": (lambda _: STORM.read_text(), partial(replay_storm, Console(file=StringIO()))),
    "summary": (a_summary, read_summary),
}


@pytest.mark.parametrize("kind", KINDS)
def test_a_wrong_file_is_read_or_refused_in_words_that_name_it(
    kind: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    draw, refused, said = random.Random(f"{FUZZ_SEED} {kind}"), 0, list[str]()
    made, read = KINDS[kind]
    whole = made(tmp_path)
    file = tmp_path / "wrong.toml"

    def put(data: bytes) -> Any:
        file.write_bytes(data)
        return read(file)

    put(whole.encode())  # it is right as it is
    for _ in range(A_KIND * TIMES):
        data = one_line_wrong(whole, draw).encode()
        if not draw.randrange(4):
            data = some_bytes_wrong(data, draw)
        try:
            put(data)
        except SpecError as error:
            refused += 1
            if not (error.allowed and error.key and (error.source or str(tmp_path) in str(error))):
                said.append(f"names not all: {error!r} of {data!r}")
        except Exception as error:  # noqa: BLE001 - which, the test says
            said.append(f"{type(error).__name__} {error} of {data!r}")
    assert not said, "\n\n".join(said[:5])
    assert refused > A_KIND * TIMES // 10


# ---------------------------------------------------------------- command lines

FILES = (
    "folder",
    "empty",
    "binary",
    "none",
    "",
    "example:nosuch",
    "example:../lab",
    "/dev/null",
    "a" * 300,
    "a\0b",
    "deep.json",
)
LINES = [
    *(("simulate", name) for name in FILES),
    *(("up", "--hosts", "2", "--script", name) for name in ("folder", "binary", "none")),
    *(("up", "--campus", name) for name in FILES[1:8]),
    *(("run", "good.toml", "--trace", name) for name in ("binary", "empty", "deep.json", "a" * 300)),
    *(("storm", "--replay", name) for name in ("folder", "binary", "none", "a" * 300)),
    *(
        ("storm", "--seeds", text)
        for text in ("x", "1:1", "5:2", "-1:2", "1:2:3", "", "1:", "0:" + "9" * 5000)
    ),
    *(("demo", "--seconds", text) for text in ("-1", "0", "nan", "inf", "x", "1e400")),
    *(("demo", "--hosts", text) for text in ("0", "-1", "2001", "x")),
    *(("simulate", name, "--draw-only") for name in ("folder", "binary", "none")),
    *(("reclaim", "h1", "--campus", "none", "--notice", text) for text in ("-1", "nan", "inf", "x")),
    *((command, "h1", "--campus", "none") for command in ("return", "reclaim")),
    ("simulate", "good.toml", "--system", "nosuch"),
    *(("submit", name) for name in ("folder", "binary", "none", "good.toml")),
    *((command, "j1", "--campus", "none") for command in ("cancel", "logs", "observe")),
    *((command, "--campus", "none") for command in ("jobs", "events", "observe", "dashboard")),
    *(("dashboard", name) for name in ("folder", "binary", "empty", "none")),
    ("sweep", "good.toml", "--set", f"beta={'9' * 5000}"),
    ("sweep", "good.toml", "--set", f"beta={'[' * 20_000}"),
    *(("sweep", name) for name in ("folder", "binary", "none", "example:nosuch")),
    *(
        ("sweep", "good.toml", *how)
        for how in (("--seeds", "1,1"), ("--set", "x"), ("--figures", "x"), ("--dask", "x"))
    ),
    ("storm", "--seeds", "0:2", "--result", "folder"),
    ("reproduce", "B2", "--quick", "--result", "none/page.md"),
    ("reproduce", "B2", "--quick", "--only", "notice"),
    ("reproduce", "B2", "--quick", "--trace", "folder"),
    ("reproduce", "B2", "--quick", "--system", "static"),
    ("measure", "hazard"),
    ("measure", "scale", "--hosts", "3"),
    ("measure", "rates", "--hosts", "9"),
    ("measure", "links", "queue"),
    ("compare", "good.toml", "--runs", "3", "--trace", "none"),
    ("simulate", "good.toml", "--seed", "-1"),
    ("simulate", "good.toml", "--out", "empty"),
    ("demo", "--group", "no-such-group"),
    ("up", "--hosts", "3", "--buildings", "0"),
    ("reproduce", "nosuch"),
    ("status", "--campus", "none"),
    ("nosuch",),
    ("simulate",),
    ("demo", "--nosuch"),
]


@pytest.fixture
def wrong_files(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    kept = {signum: signal.getsignal(signum) for signum in (signal.SIGTERM, signal.SIGHUP)}
    (tmp_path / "folder").mkdir()
    (tmp_path / "empty").touch()
    (tmp_path / "binary").write_bytes(bytes(range(256)))
    (tmp_path / "deep.json").write_text("[" * 100_000)
    (tmp_path / "good.toml").write_text('name = "good"\ncampus = "example:lab"\n')
    monkeypatch.chdir(tmp_path)
    yield
    for signum, handler in kept.items():
        signal.signal(signum, handler)


@pytest.mark.parametrize("line", LINES, ids=lambda line: " ".join(line)[:60])
@pytest.mark.usefixtures("wrong_files")
def test_a_wrong_command_line_is_status_2_and_one_clear_error(
    line: tuple[str, ...], capfd: pytest.CaptureFixture[str]
) -> None:
    assert exit_status.run(lambda: app(list(line), standalone_mode=False)) == exit_status.ExitStatus.NOT_RUN
    told = capfd.readouterr().err
    assert "Traceback" not in told
    assert len(told.strip()) > 20
