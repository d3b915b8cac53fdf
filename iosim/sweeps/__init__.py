"""Sweeps that outgrow a process or a night: cut into parts, counted by workers, and continued after a fault.

Read in this order: questions.py says what is asked at each point. parts.py cuts the described grid of a sweep into
parts. workers.py and scheduler.py let processes or Dask make them. folder.py keeps them in a folder, with a hash of
each. gather.py puts them together. frame.py answers `iosim.sweep`.
"""
