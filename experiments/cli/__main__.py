"""`python -m experiments.cli`."""

from experiments.cli.start import main

if __name__ == "__main__":
    main()
