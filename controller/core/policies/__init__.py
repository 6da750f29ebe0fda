"""Systems as rows.

`table` is the literal dict from a system's name to the functions that it uses. `baselines` are the functions of the
systems that the papers compare with. A new policy is a function and a row. Begin with `table`.
"""
