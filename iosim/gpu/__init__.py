"""What runs on a GPU: generated and tuned kernels, their hardware counters, and the verdict on them.

    program = generate(schedule, problem, tiling, count=True)      # cuda/machine.py: no GPU needed
    outputs, counts = run_on_device(program, inputs)               # run.py: needs a GPU

Only device.py imports CuPy, and only inside functions.
"""
