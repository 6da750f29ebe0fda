"""Where a scenario is played: `live` (namespaces and processes), `virtual` (a heap of events), `oracle` (virtual, with the
trace known), `queue` (paper B's queue alone). May import `results` and below.
"""
