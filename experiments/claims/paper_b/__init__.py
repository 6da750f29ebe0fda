"""Figures of paper B (opportunistic spot scheduling), one module each, and the learning runs that they share. Begin with
`b2`.
"""
