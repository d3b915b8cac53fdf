"""A grid of counts as a DataFrame: how the traffic of two schedules falls with the SRAM. The rows go to a CSV file."""

import sys

import iosim

rows = iosim.sweep(N=4096, d=64, M="16KB:128KB:x2", schedules="flash1,flash2", tiles="best")
print(rows.pivot(index="M_bytes", columns="schedule", values="total"))
if len(sys.argv) > 1:
    rows.to_csv(sys.argv[1], index=False)
