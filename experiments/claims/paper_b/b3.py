"""Paper B, Fig. 3: bath-tub spots, a relaxed delay."""

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

CASES = (LearningCase("Poisson jobs", "fig3-poisson"), LearningCase("Gamma jobs", "fig3-gamma"))
TITLE = "Bath-tub spots, delay target 18 h: several jobs wait, and r is learned all the same"
CLAIM = Claim(
    name="B3",
    paper="Paper B, Fig. 3",
    title=TITLE,
    text=(
        "With bath-tub spots and a relaxed target of 18 h no closed form is known, yet both running averages of cost converge to "
        "a common value while Algorithm 1 learns to keep the delay at 18 h, from a low and from a high start."
    ),
    does_not_prove=(
        "What the paper's common value is: it prints none, so cost is compared with our exact stationary numbers (3.414 for "
        "Poisson, 2.884 for Gamma jobs). Nor that it is the least cost: with Poisson jobs the bound for policies that see "
        "the age of the gap is "
        f"{CASES[0].exact.age_aware_cost:.3f}."
    )
    + JUDGED,
    headline=HEADLINE,
    run=partial(run, CASES),
    draw=partial(draw, TITLE, CASES),
    check=partial(judge, CASES),
)
