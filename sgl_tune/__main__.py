"""`python -m sgl_tune`."""

from sgl_tune.cli.app import program

if __name__ == "__main__":
    program()
