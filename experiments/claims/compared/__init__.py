"""The systems of Table III where no paper had them: on owners that others recorded (`traces`, whose runs are
`owner_records`), and on other campuses (`campuses`). `standings` judges both, by what `run_figures` keeps of each run.
"""
