"""The live page of a campus, or of a run that is over: `reclaimnet dashboard`.

It is a process of its own. It reads a journal or an events.jsonl, and asks the coordinator only for signs of life, so
it can slow no decision.

    sources      facts from a journal (in use or not), or from a file of facts.
    campus_state hosts, jobs, flows, links and the queue at one moment, folded from facts.
    event_log    the whole run: bars and spans of the time line, the queue's curve, facts shown in words.
    feed         follows a source, and answers for any moment of it.
    switches     the owners' switches, from the page.
    metrics      for Prometheus.
    application  answers to a browser.
    serve        the process.

The page itself is `static`. May import `worlds` and below. Begin with `feed`.
"""
