"""Constants of 64-bit words. Of their own type: a word and a plain integer would make a double."""

from __future__ import annotations

import numpy as np

U32 = np.uint32
U64 = np.uint64
ONE = np.uint64(1)
TWO = np.uint64(2)
LOW = np.uint64(0xFFFFFFFF)  # the low half of a word
HALF = np.uint64(32)  # the shift that leaves the high half
