"""The report of one run: `report.html`, one page that needs nothing else, `summary.json`, and a table for the terminal.

All of it is made from the journal's facts, what observers measured, and the accounting of both. `tables` has the words
and figures; pictures: `timeline` and `charts`, data for `drawing` and its template, and
`campus_map`. Begin with `page`.
"""

from experiments.results.report.page import summary_table, write, write_summary

__all__ = ["summary_table", "write", "write_summary"]
