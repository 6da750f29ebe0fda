"""The live page of a campus, or of a run that is over: `reclaimnet dashboard`. A process of its own, which reads a journal or an
events.jsonl and asks the coordinator nothing but whether it answers, so it can slow no decision.

    sources     where facts come from: a journal (in use or not), or a file of facts
    picture     hosts, jobs, flows, links and the queue at one moment, folded from facts; what changed since when
    chronicle   the whole run: bars and spans of the time line, the queue's curve, which facts are told in words
    feed        follows a source, and answers for any moment of it
    decisions   why: the run decided again by the same core, with a witness (`reasons`); `kept`: what it found
    switches    the owners' hand, from the page
    metrics     for Prometheus
    application what is answered to a browser;  serve: the process

The page itself is `static`. May import `worlds` and below. Begin with `feed`.
"""
