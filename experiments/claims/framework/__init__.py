"""The parts of every claim.

`claim`: a sentence, a run and a rule; `values`: its files; `rows`: numbers of many seeds; `verdicts`: the judging;
`sweep`: runs of many seeds; `pictures`; `records`. Begin with `claim`.
"""
