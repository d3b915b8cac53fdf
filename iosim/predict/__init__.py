"""DRAM bytes and seconds of a launch, predicted. It needs no GPU."""
