"""A `ninja` and an `nvcc` that compile nothing, for a server that builds its modules at run time."""

from pathlib import Path

TOOLS = Path(__file__).with_name("tools")


def environment(path: str) -> dict[str, str]:
    """Return variables that make a server find them first on its PATH."""
    return {
        "PATH": f"{TOOLS}:{path}",
        # DeepGEMM calls its compiler by a full path; both names were used.
        "DG_JIT_NVCC_COMPILER": str(TOOLS / "nvcc"),
        "SGL_DG_JIT_NVCC_COMPILER": str(TOOLS / "nvcc"),
    }
