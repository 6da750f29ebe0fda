"""Paper A, P3: which migrations can keep their deadlines, and at what rates.

`admission` has the rules, `schedule` the timetable of what is admitted, and each admitted transfer.
`lifecycle.migration` asks. May import `network` and `controller.numerics` only. Begin with `admission`.
"""
