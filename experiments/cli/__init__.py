"""The command line.

A module has the commands of each group that `--help` shows: `run`, `look`, `change`, `compare`, `measure`, `write`, `tend`. A
command returns its exit status, and imports what it needs itself, so that `--help` is quick. `options` is what several share;
`owner`, the quick way of `reclaim` and `return`, goes past all others. May import all of `experiments`. Begin with `main`.
"""
