"""What outlives the coordinator's process: `journal` (SQLite), `snapshot` (the core as bytes), `recovery` (a coordinator
goes on where the last one stopped). May import `controller.core`. Begin with `journal`.
"""
