"""Running of programs: signals, exit statuses, worker processes and machine code.

`exit_status` (signals, exit statuses), `tasks` played by `engines` (here, in `workers`, on Dask), `progress` (on the
terminal), `native` (the virtual campus as machine code), `revision` (the text of the project), `sudo_ownership` (files
under sudo). Imports nothing of `experiments` above it.
"""
