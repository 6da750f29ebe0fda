"""Benchmarks: figures side by side with a peer or a goal, in one run on one machine. Begin with `frame`.

A benchmark is a module named as in `reclaimnet measure NAME`. `run_all` runs all of them; `attacks`,
`syn_storm`, `one_trunk`, `decisions_world` and `nodes` are their parts.
"""

from __future__ import annotations

# name -> (seconds that `measure all` allows, subject)
BENCHMARKS = {
    "killswitch": (300.0, "time from an owner's act to the last connection let in, by each way to close a host"),
    "links": (180.0, "links that delay, lose and change: round trips, throughput, lateness"),
    "isolation": (240.0, "research's share beside granted migrations and attacks (paper A, Theorem 4)"),
    "migrations": (300.0, "simultaneous notices over one trunk, by enforcement (paper A, E3)"),
    "scale": (300.0, "live campuses of growing size, idle and at work"),
    "failover": (300.0, "take-over of a coordinator that is killed, and of etcd's leader with it"),
    "rates": (240.0, "goodput over grant: pacing, paper A's drop bucket, HTB classes, nothing"),
    "fabric": (180.0, "kernel bridges beside Open vSwitch; gaps when trunks are cut"),
    "transfer": (120.0, "checkpoints over a veth pair beside bare sendfile"),
    "trust": (300.0, "names, sealed bytes, a log in etcd beside plain: registration, memory, decisions"),
    "snapshots": (120.0, "pause of a job for a snapshot: stop or copy"),
    "jobs": (60.0, "a job's start: a bare fork, namespaces, the whole sandbox"),
    "decisions": (180.0, "the coordinator's tick at 54 to 50 000 hosts; two months in virtual time"),
    "bringup": (120.0, "bring-up and teardown of a campus, on bridges and Open vSwitch, beside stock Mininet"),
    "queue": (120.0, "paper B's queue: jobs a second, distance from theory"),
}
