"""How good a kernel is: its error against float64 beside a peer's, and its time paired with a peer's.

``pairs`` has the protocol of timing, ``intervals`` its statistics, ``clocks`` what the device did meanwhile, ``errors`` the
measures of error, ``inputs`` the tensors that two sides share and exchange, ``peer`` what a kernel is compared with, ``case``
one shape from inputs to record, ``record`` what a result must be read with. docs/measuring.md has it in words.
"""
