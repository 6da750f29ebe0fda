"""The OpenFlow controller of a campus whose switches can be programmed: a process of its own, beside the coordinator.

`topologies.openflow` is what it is told (switches, trunks, where hosts hang), `routes` decides (topology and dead trunks in,
flow and group tables out; pure), `tables` says what those are and which messages lead a switch from one to the other, `walk`
which way a packet takes, `app` speaks OpenFlow 1.3 through os-ken, `runner` runs it, or an application of one's own. Begin with
`routes`. Imports topologies and nothing else of the project; `app` and `runner` alone import os-ken (`lean`: without what it
hardly uses).
"""
