"""`python -m experiments.cli`."""

from experiments.cli.main import main

if __name__ == "__main__":
    main()
