"""The command line: `main` declares the commands, each has a module that does it. May import all of `experiments`. Begin with
`main`."""
