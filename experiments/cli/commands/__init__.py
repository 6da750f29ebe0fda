"""Commands of the command line: a module for each group that `--help` shows.

Each command is a few lines here and a module elsewhere. The commands import it themselves, so that `--help` is quick.
"""
