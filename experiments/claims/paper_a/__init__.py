"""Tables and figures of paper A (ReclaimNet), one module each, and their shared runs.

The shared runs are `campus_runs` (with `campus_result`, the result kept, and `campus_numbers`, the columns),
`reclaim_bursts`, `drift_runs` and `gap_runs`. Begin with `table3`.
"""
