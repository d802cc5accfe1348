"""Compiled kernels: plain @njit functions over arrays, installed as fastcmdp.kernels."""

if __name__ != "fastcmdp.kernels":
    raise ImportError("import fastcmdp.kernels, not the source folder kernels/")
