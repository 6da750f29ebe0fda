"""Results in the papers that no claim judges, each with the reason: a verdict on a paper leaves nothing out in silence."""

from __future__ import annotations

# (item, why)
NOT_COVERED: tuple[tuple[str, str], ...] = (
    ("A, I: mean utilisation below 35 % as measured", "a measurement of owners that is not published"),
    (
        "A, I: +28 % utilisation, +11.7 points of migration success",
        "they follow from no row of the paper's tables",
    ),
    ("A, I: fewer than 500 B enter after the kill-switch", "judged in packets (A-kill), not in bytes"),
    ("A, Tables I and II", "qualitative"),
    (
        "A, IV: correlation of 6 048 buckets with its interval [-.51, -.34]",
        "the trace is drawn to have the mean",
    ),
    ("A, V-E: beta changes goodput by less than 2 %", "A-fig9 sweeps work loss and downtime, not goodput"),
    ("A, VI: alpha calibrated on weeks 1 and 2, judged on the rest", "A-fig9 sweeps it over the whole trace"),
    ("A, VII: starts staggered by tau/K'", "it breaks Theorem 3, so it is not played"),
    (
        "A, Fig. 6a: Bamboo, TV-FI, No-TC-BPF by job class; full-state LLM (App. B)",
        "A-fig6 plays ReclaimNet, static, Slurm and the oracle",
    ),
    (
        "A, Fig. 6c: downtime, success and degradation under drift",
        "A-drift judges work loss and the hazard's error",
    ),
    (
        "A, Table III: work loss in GPU-hours",
        "how it was counted is not said; its ratios are judged (A-table3)",
    ),
    (
        "A, Table III: the oracle's traffic degradation of 0",
        "it plans on a trace, and waves have none to plan on",
    ),
    (
        "A, IX-A: results of natural reclaims only (2.6, 58, 2.7, 6.4)",
        "the trace does not say which reclaims were natural",
    ),
    (
        "A, E1: intervals of 4 to 6 min; Wilcoxon over 847 events",
        "events of one run are not independent; tests here are over seeds",
    ),
    (
        "A, E3: bursts from 6.8 to at most 4.2 Gbit/s, headroom of 30 %",
        "bursts are shorter than a fluid network knows",
    ),
    ("A, E5: below .1 ms a node for Algorithm 1", "A-fig8 times the whole tick"),
    ("A, Table IV: work loss in GPU-hours", "as in Table III; its factors are judged (A-table4)"),
    (
        "A, E8: p = .21, interval [2.7, 3.3] GPU-h",
        "A-drift judges the ratio with its own interval, in no unit of the paper",
    ),
    ("A, X: leader election", "one coordinator with a journal; not implemented"),
    (
        "A, App. C-A: bandwidth binds in 97 % of epochs, 5.4 %",
        "the trace has no disks; the formula is one of the tests of reference vectors",
    ),
    (
        "A, App. C-C: grid of 5, 10, 15 min; 36 and 13.6 min",
        "the intervals are one of the tests of reference vectors; the grid is not played",
    ),
    ("A, App. D: mTLS, MIG, seccomp", "not part of the testbed's claims (README, Limits)"),
    (
        "A, eqs. (2), (9) to (12), Theorems 1, 3 and 4, Lemmas 2 and 3",
        "vectors of tests, which the paper does not print; no verdict row",
    ),
    (
        "B, Theorems 1 to 5, Corollaries 1 to 4, Remarks 1 to 3",
        "vectors of tests, which the paper does not print; no verdict row",
    ),
    (
        "B, insets of Figs. 2 and 3: r(n), r* of about .3 and 3",
        "drawn; delay has kinks in r, so delay and cost are judged",
    ),
    ("B, V: Algorithm 1 as printed converges", "drawn beside the corrected one, in no verdict"),
    ("B, k from 3 to 10", "the claims play k = 10; no rule depends on k"),
)
