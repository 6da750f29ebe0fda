"""Running of programs: signals, exit statuses and worker processes.

`exit_status` (signals, exit statuses), `tasks` played by `engines` (here, in `workers`, on Dask), `progress` (on the
terminal), `revision` (the text of the project), `sudo_ownership` (files
under sudo). Imports nothing of `experiments` above it.
"""
