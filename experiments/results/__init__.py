"""What a run was, from its journal and from what observers measured: `history` (stories of jobs), `losses` (the one
definition of work loss), `promises` (what must hold), `accounting` and `summary` (the figures), `narration` (facts in
words), `report` (the page); and what all pages share: `pages` (templates, one style), `pictures` (plots), `report.svg`
(pictures that answer the pointer). May import `inputs` and below. Begin with `summary`.
"""
