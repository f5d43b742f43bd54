"""What each command does: an ordinary function, a thin layer over one public function.

Its parameters are the words of the command, its docstring the help. What it needs it imports itself, so
that `--help` does not wait for PyTorch.
"""
