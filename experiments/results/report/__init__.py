"""The report of one run: `report.html`, one page that needs nothing else, `summary.json`, and a table for the terminal.

All of it is made from the journal's facts, what observers measured, and the accounting of both. `tables` has the words
and figures; `charts` are plots by matplotlib; `timeline` is data for `drawing` and its template.
Begin with `page`.
"""

from experiments.results.report.page import summary_table, write

__all__ = ["summary_table", "write"]
