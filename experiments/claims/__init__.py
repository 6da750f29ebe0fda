"""Tables and figures of both papers, each by one command: claim, run, values file, picture, verdict.

`claim` says what a claim is, `values` what it leaves on disk, `verdicts` by which rules it is judged, `statistics` which
intervals and tests there are, `sweep` runs many seeds (in a pool, resumed where it stopped), `reproduce` does one claim
after the other, `index` makes the page of all that have been run. `registry` is the literal dict of them all: a new
table or figure is one file and one row there. Paper B's figures (`b2` to `b5`) share `learning` and its parts:
`learning_runs` and `courses` (one run), `learning_checks`, `learning_figure`. May import everything below `experiments`,
`experiments.theory` and `experiments.worlds.queue`. Begin with `b2`, then `claim`."""
