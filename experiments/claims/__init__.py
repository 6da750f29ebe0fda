"""Tables and figures of both papers, each by one command: claim, run, values file, picture, verdict.

`framework` is what every claim is made of; `paper_a`, `paper_b`, `both` and `policy_comparison` (on recorded owners) are the
claims, `not_covered` what no claim judges, and why. `registry` is the literal dict of them all: a new table or figure
is one file and one row there. `reproduce` runs one after the other; `index` and `results` are the pages. May import
`benchmarks` and below. Begin with `paper_b/figures`, then `framework/claim`.
"""
