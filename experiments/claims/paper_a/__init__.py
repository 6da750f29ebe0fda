"""Tables and figures of paper A (ReclaimNet), one module each, and the runs that they share: `campus_runs` (what is kept:
`campus_result`; what columns mean: `campus_numbers`), `reclaim_bursts`, `drift_runs`, `gap_runs`. Begin with `table3`.
"""
