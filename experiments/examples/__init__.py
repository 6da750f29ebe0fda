"""Eight programs of one idea each, in the order in which docs/examples.md shows them. Those that build a campus need root."""
