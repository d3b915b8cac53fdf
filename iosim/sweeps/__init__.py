"""Sweeps too large for one process: cut into parts, counted by workers, and continued after a fault.

In reading order: questions.py asks a command at each point. identity.py has the files on which rows depend. parts.py
cuts a sweep into parts, whose rows row_text.py writes. executors.py says what makes them: this process, several, or
Dask (scheduler.py). folder.py keeps them in a folder, with a hash of each. run.py puts these together, and answers
`iosim.sweep`. gather.py joins a folder.
"""
