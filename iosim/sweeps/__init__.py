"""Sweeps too large for one process: cut into parts, counted by workers, and continued after a fault.

In reading order: questions.py asks a command at each point. parts.py cuts a sweep into parts. workers.py and
scheduler.py let processes or Dask make them. folder.py keeps them in a folder, with a hash of each. gather.py joins
them. frame.py answers `iosim.sweep`.
"""
