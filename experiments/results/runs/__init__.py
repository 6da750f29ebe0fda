"""Runs beside one another: the `index` of all runs in a folder, and what differs between two to six (`diff`).

They are read from what the runs left (`summary.json`, `report.html`): no run is played or judged again. Begin with `folders`.
"""
