"""Events of a run, and what a cache would make of its accesses."""
