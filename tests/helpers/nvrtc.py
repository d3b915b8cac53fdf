"""NVRTC by ctypes, from the packages nvidia-cuda-nvrtc, -runtime and -crt: compiles CUDA where there is no GPU."""

import ctypes
import importlib.util
import re
from pathlib import Path


def library():
    """The path of the NVRTC library in the nvidia packages, or None."""
    spec = importlib.util.find_spec("nvidia")
    for base in spec.submodule_search_locations if spec else []:
        for path in sorted(Path(base).glob("**/libnvrtc.so.*")):
            return path
    return None


LIBRARY = library()
WHY_NOT = "" if LIBRARY else "nvidia-cuda-nvrtc is not installed: pip install iosim[test-all]"


def compiled(source, arch, *options):
    """(cubin, log) for an architecture as sm_90; the log says registers, spills and shared memory of each kernel."""
    lib, program = ctypes.CDLL(str(LIBRARY)), ctypes.c_void_p()
    assert lib.nvrtcCreateProgram(ctypes.byref(program), source.encode(), b"kernel.cu", 0, None, None) == 0
    include = f"-I{LIBRARY.parent.parent / 'include'}"
    texts = [f"--gpu-architecture={arch}", "--ptxas-options=-v", include, *options]
    given = (ctypes.c_char_p * len(texts))(*(text.encode() for text in texts))
    code = lib.nvrtcCompileProgram(program, len(texts), given)
    log = text_of(lib, program, "ProgramLog")
    assert code == 0, log
    cubin = text_of(lib, program, "CUBIN", raw=True)
    lib.nvrtcDestroyProgram(ctypes.byref(program))
    return cubin, log


def text_of(lib, program, what, raw=False):
    size = ctypes.c_size_t()
    getattr(lib, f"nvrtcGet{what}Size")(program, ctypes.byref(size))
    buffer = ctypes.create_string_buffer(size.value)
    getattr(lib, f"nvrtcGet{what}")(program, buffer)
    return buffer.raw if raw else buffer.value.decode(errors="replace")


def usage(log):
    """{kernel: (registers, spilled bytes)} from the log of ptxas."""
    found = {}
    for part in re.split(r"Compiling entry function '", log)[1:]:
        spills = sum(int(n) for n in re.findall(r"(\d+) bytes spill", part))
        found[part.split("'")[0]] = (int(re.search(r"Used (\d+) registers", part).group(1)), spills)
    return found
