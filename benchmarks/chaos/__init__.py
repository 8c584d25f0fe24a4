"""Verdicts tried on hardware: mutants, the corpus and the examples under inserted delays, many seeds each.

    python -m benchmarks.chaos build DIRECTORY [--jobs N]     anywhere: chooses mutants by verdict, builds with chaos
    python -m benchmarks.chaos run DIRECTORY --out OUT        on a GPU: runs every seed of every kernel in worker processes

A mutant that the verifier calls safe must be right under every seed, and so must the corpus and the examples. One that it calls
unsafe may go right: the share that shows wrong results, hangs or traps is reported by class.
"""
