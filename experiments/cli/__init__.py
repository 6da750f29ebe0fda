"""The command line.

`main` declares the commands (`measure` its own); each has a module of its name that does it. `options` is what several
share. `start` comes first: `owner`, the quick way of `reclaim` and `return`, goes past all others. May import all of
`experiments`. Begin with `main`.
"""
