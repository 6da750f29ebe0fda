"""Arithmetic whose results are the same on every machine.

`jit` compiles functions to machine code and keeps it. `portable_math` gives exp, log and cube root to the same last
bit on every machine. Imports nothing of the project.
"""
