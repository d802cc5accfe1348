"""Outer loops of the algorithms, one file each, as fastcmdp/algorithms has their settings."""
