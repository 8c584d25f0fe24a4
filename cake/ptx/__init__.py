"""The translation check: what was emitted says what was checked (P119).

The PTX that NVRTC made of the emitted CUDA is read back (``reader``), reduced to the values that steer synchronisation
(``lower``, ``flow``, ``slicing``) and run symbolically for each kind of thread (``explore``) into an automaton whose
letters are the synchronising and data-moving instructions with their operands (``events``). ``check`` makes the same
automaton of the expanded kernel, ``compare`` decides whether the two accept the same sequences, and ``launches`` runs
both with known parameters.

Nothing here knows the machine, the verifier, the expander, the op table or the emitter: a mistake there cannot hide
itself here.

**Proved**, for all dims and inputs and for every thread (each warp, its elected lane and its other lanes): the two sides
can do the same sequences of letters. A letter has its operands: shared addresses of barriers and copies, counts, bytes,
parities, ids, numbers of threads, groups kept, registers, tensor maps, cache policies, and of a wgmma shape, types,
transposition, whether it accumulates, and both descriptors. So loops, ring positions, phases and guards agree, however
the compiler rotated, peeled, unrolled or duplicated code. A try_wait that fails is tried again with nothing in between.

**Compared in sampled launches only**: coordinates of copies, trip counts and run-time conditions. In the automata an
unknown condition goes both ways (one computed before keeps its outcome), so a wrong bound of a loop or another condition
with the same letters on both arms shows only there.

**Not compared**: values of data and register operands; addresses of ordinary loads and stores, of ldmatrix and stmatrix
and of atomics; the number of cp.async and red instructions where it differs between threads. An operand that neither
side knows is taken to agree.

**Assumed**: elect.sync picks the same lane each time; counters do not overflow; loops without letters end; shared memory
starts at a multiple of 1024; ptxas and the hardware do what the PTX says.
"""
