"""The OpenFlow controller of a campus whose switches can be programmed: a process of its own, beside the coordinator.

`topologies.openflow` has its messages (switches, trunks, hosts; ways that are wanted). `routes` decides: topology and
dead trunks in, flow and group tables out. `tables` defines those and finds which messages lead a switch from one to
the other. `wire` writes them, `forwarding` finds which way packets take through them. `app` speaks OpenFlow 1.3
through os-ken, with `clients` and the switches' `caches`; `runner` runs it, or an application of one's own. Begin
with `routes`. Imports topologies and `testbed.logs` alone of the project.
"""
