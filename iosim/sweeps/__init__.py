"""Sweeps too large for one process: cut into parts, counted by workers, and continued after a fault.

In reading order: questions.py asks a question at each point. inputs.py has the files on which rows depend. parts.py
cuts a sweep into parts, whose rows row_text.py writes. executors.py says what makes them: this process, several, or
Dask (dask_workers.py). folder.py keeps them in a folder, and joins them. run.py answers `iosim.sweep`.
"""
