"""The parts of every claim.

`claim`: a sentence, a run and a rule; `values`: its file; `rows`: numbers of many seeds; `verdicts`: the judging; `runs`: tasks
played once and kept; `panels`: its picture. Begin with `claim`.
"""
