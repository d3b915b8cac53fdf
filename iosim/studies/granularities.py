"""The words of `iosim cache`, which its options name before anything is loaded."""

GRANULARITIES = ("line", "word", "tile")
POLICIES = ("lru", "belady", "both")
