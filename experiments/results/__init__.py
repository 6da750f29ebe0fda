"""Results of a run, from its journal and from what observers measured.

- Read: `history` (stories of jobs), `frames` (as tables), `measurements` (of jobs themselves), `events_file`.
- Counted, in a `run_context`: `losses` (the one definition of work loss), `lost_time` (of GPUs); `expected_loss` (without
  chance) and `online_bound` (the least of it), by the `hazard` of owners; `link_rates`, `accounting` and `summary` (the
  figures); `statistics` (over seeds).
- Judged: `rules` (what must hold).
- Shown: `narration` (facts in words), `live_lines`, `report` (the page), `differences` (of runs), `provenance`.
- Shared by all pages: `pages` (templates, one style), `pictures` (plots).

May import `inputs` and below. Begin with `summary`.
"""
