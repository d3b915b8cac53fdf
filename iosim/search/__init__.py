"""The search for the tiles that move least and fit.

In reading order: best.py is the search. inner_tile.py and outer_tile_under_mask.py are its two harder cases.
shared_sram.py is a search of its own, for two loops whose tile sizes share the SRAM, and shared_sram_curve.py finds its
answers at every M.
"""
