"""The translation check: what was emitted says what was checked (P119).

The PTX that NVRTC made of the emitted CUDA is read back (``reader``), reduced to the values that steer synchronisation
(``lower``, ``flow``) and run symbolically for each kind of thread (``explore``) into an automaton whose letters are the
synchronising and data-moving instructions with their operands. ``check`` makes the same automaton of the expanded
kernel, and ``compare`` decides whether the two accept the same sequences.

Nothing here knows the machine, the verifier, the expander or the op table: a mistake there cannot hide itself here.
"""
