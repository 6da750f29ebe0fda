"""Controllers of the queue's level r, which extend `controller.Controller`.

`controller` follows one rule for ever, or moves r by the gradient step of paper B, corrected. `replay` asks the
recorded arrivals which r would have met the target delay. `age` also asks which rule on the age of the gap between
two spot offers would have been cheapest. May import `controller.core.queueing.replay`,
and nothing else of the core. Begin with `controller`.
"""
