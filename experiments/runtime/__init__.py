"""Running of programs: signals, exit statuses and worker processes.

`exit_status` has signals and exit statuses; `engines` play `tasks` here, in `workers`, or on Dask. `progress` is for
the terminal, `revision` for the text of the project, `sudo_ownership` for files under sudo. The package imports nothing
of `experiments` above it.
"""
