"""Every speed promise as a program: one JSON line each, exit 1 on a miss.

`python -m benchmarks` runs them all, `python -m benchmarks one_turn tool_steps` some of them.
"""
