"""Paper B, Fig. 4: memoryless jobs and spots, a tight delay."""

from functools import partial

from experiments.claims.framework.claim import Claim
from experiments.claims.paper_b.learning import (
    HEADLINE,
    JUDGED,
    LearningCase,
    run,
)
from experiments.claims.paper_b.learning_checks import judge
from experiments.claims.paper_b.learning_figure import draw

CASES = (LearningCase("Poisson jobs and spots", "fig4", published_cost=8.875),)
TITLE = "Poisson spots, delay target 3 h: one slot is optimal, and it is learned"
CLAIM = Claim(
    name="B4",
    paper="Paper B, Fig. 4",
    title=TITLE,
    text=(
        "With jobs every 12 h and spots every 24 h, both Poisson, and a tight target of 3 h, the curves of cost converge to "
        "k - (k - 1) mu delta = 8.875 when those of delay converge to 3 h, from a low and from a high start."
    ),
    does_not_prove=(
        "Optimality: that is a theorem here (the linear program over all policies has the same value, 8.875), and no run can "
        "show it. Real spots are not memoryless; Figs. 2 and 3 say what changes then."
    )
    + JUDGED,
    headline=HEADLINE,
    run=partial(run, CASES),
    draw=partial(draw, TITLE, CASES),
    check=partial(judge, CASES),
)
