"""Paper B, Fig. 5: memoryless jobs and spots, a relaxed delay."""

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
from experiments.theory.paper_b.markov import theorem5

THEOREM_5 = theorem5(12.0, 24.0, 3, 10.0).cost
CASES = (LearningCase("Poisson jobs and spots", "fig5", published_cost=THEOREM_5, published_r=3.0),)
TITLE = "Poisson spots, delay target 27 h: r goes to about 3"
CLAIM = Claim(
    name="B5",
    paper="Paper B, Fig. 5",
    title=TITLE,
    text=(
        "With jobs every 12 h and spots every 24 h, both Poisson, and a relaxed target of 27 h, Algorithm 1 learns r = N = 3; "
        f"the cost converges to Theorem 5's optimum for N = 3 ({THEOREM_5:.3f}) and the delay to 27 h."
    ),
    does_not_prove=(
        "That r* is 3: delta_3 is 27.2 h, so 27 h takes r* = 2.958 and costs 5.807. The published cost beside ours is Theorem 5 "
        "evaluated at N = 3; the paper prints the formula and no number."
    )
    + JUDGED,
    headline=HEADLINE,
    run=partial(run, CASES),
    draw=partial(draw, TITLE, CASES),
    check=partial(judge, CASES),
)
