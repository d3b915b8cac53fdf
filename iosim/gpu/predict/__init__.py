"""DRAM bytes and seconds of a launch, predicted. It needs no GPU.

In reading order: predict.py puts everything together. For DRAM bytes, blocks.py says what thread blocks touch, dram.py
plays the launches, and l2.py is the cache. For seconds, block_work.py counts the work of a block, launch_time.py turns
it into time, and last_wave.py finds when the last block ends.
"""
