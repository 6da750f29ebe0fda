"""Persistent state of the coordinator: `journal` (SQLite), `snapshot` (the core as bytes), `recovery` (a restart).

May import `controller.core`. Begin with `journal`.
"""
