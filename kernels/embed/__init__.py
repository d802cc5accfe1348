"""The pieces of the solvers for other people's loops, in njit code and in C: see ``fastcmdp.embed``."""
