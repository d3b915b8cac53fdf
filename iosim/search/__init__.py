"""The search for the tiles that move least and fit.

In reading order: best.py is the search. inner_tile.py and outer_tile_under_mask.py are its two harder cases.
shared_sram.py is a separate search, for two loops whose tile sizes share the SRAM. shared_sram_curve.py finds the
answers of that search at every M.
"""
