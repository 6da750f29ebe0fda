"""The OpenFlow controller of a campus whose switches can be programmed: a process of its own, beside the coordinator.

`topology` is what it is told (switches, trunks, where hosts hang), `routes` decides (topology and dead trunks in, flow and group
tables out; pure), `tables` says what those are and which differences bring a switch from one to the other, `app` speaks
OpenFlow 1.3 through os-ken. Begin with `routes`. Imports topologies and nothing else of the project; `app` alone imports os-ken.
"""
