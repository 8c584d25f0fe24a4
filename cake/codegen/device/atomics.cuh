// atomics
