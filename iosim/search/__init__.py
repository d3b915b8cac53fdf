"""The search for the tiles that move least and fit."""
