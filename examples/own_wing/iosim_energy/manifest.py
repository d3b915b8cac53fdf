"""What the package brings: a command, a question of sweeps, and a function. It imports nothing else of the package."""

from iosim.wings import Wing

WING = Wing(
    commands={"On a GPU": {"energy": "Millijoules of the bytes between HBM and SRAM."}},
    names={"energy": "energy"},
    points={"energy": "energy:ENERGY"},
)
