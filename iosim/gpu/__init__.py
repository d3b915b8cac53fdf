"""The GPU: the machine that writes CUDA from a schedule's text, and what runs it.

    program = generate(schedule, problem, tiling, count=True)      # cuda/machine.py: no GPU needed
    outputs, counts = run_on_device(program, inputs)               # run.py: needs one

Only device.py imports CuPy, and only inside functions.
"""
