"""What every claim is made of: `claim` (a sentence, a run, a rule), `values` (what it leaves on disk) and `rows` (of many
seeds), `verdicts` (how it is judged), `sweep` (many seeds), `pictures`, `records`. Begin with `claim`.
"""
