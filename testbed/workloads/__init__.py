"""Jobs: what a workload is, the one that comes with the testbed, and the process that a job runs in.

`base.py` is all that a third party needs: subclass `Workload` and name it "module:Class". `runner.py` is the inside of a
job's process and imports no trio, so that it starts fast; `process.py` is the agent's side of it. This file imports
nothing for the same reason. May import `testbed.framing`, `testbed.errors` and `topologies.units`.
"""
