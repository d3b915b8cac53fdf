"""Whether kernels can run on this machine."""

from iosim.errors import MissingError
from iosim.gpu.device import cupy


def has_gpu():
    try:
        cupy()
    except MissingError:
        return False
    return True
