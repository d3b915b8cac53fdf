"""The problem, the machines and their watchers: what every schedule is written for.

In reading order: machine.py, problem.py and tiling.py are what a schedule sees. watchers.py, folded.py and
numeric.py run it and count. text_lines.py says at which line. dependent_tiles.py, shapes.py, arrays.py, rounding.py,
blame.py and typing.py help them.
"""
