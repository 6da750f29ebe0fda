"""Tables and figures of both papers, each by one command: claim, run, values file, picture, verdict.

`framework` is what every claim is made of; `paper_a`, `paper_b`, `both_papers` and `policy_comparison` (on recorded owners)
are their runs and checks, `claims.toml` their statements and what no claim judges. `registry` joins them: a new table or
figure is one file, one row and one statement. `reproduce` runs one after the other; `pages` shows them. May import
`benchmarks` and below. Begin with `registry`, then `framework/claim` and `paper_a/fig3`.
"""
