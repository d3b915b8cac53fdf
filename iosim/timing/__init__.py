"""How long at least, and which tiles on a GPU: what the level below M moves, and the bound that follows.

`products` counts what matrix units read from shared memory, `work` all that a launch does, `bound` the least time of
it on a GPU, `tiles` the tiles that allow the least time. Nothing here is fitted.
"""
