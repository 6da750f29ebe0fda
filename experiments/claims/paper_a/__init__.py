"""Tables and figures of paper A (ReclaimNet), one module each, and the campus runs that they share. Begin with `table3`."""
