"""Figures of paper B (opportunistic spot scheduling).

`figures` has a row for each, `learning` runs, `learning_figure` draws and `learning_checks` judges them.
`learning_runs` is one run, `algorithm1_printed` the paper's algorithm to the letter. Begin with `figures`.
"""
