"""Policy classes: softmax over logits that are one parameter a choice, linear in features, or a network's outputs.

A policy object holds only what the user chose. ``bind`` checks it against a model and returns what the kernels
read, with the constants of the class (Assumption 2 of the paper).
"""

from fastcmdp.policies.base import BoundPolicy, Policy, check_policy
from fastcmdp.policies.log_linear import LogLinear
from fastcmdp.policies.neural import NeuralSoftmax
from fastcmdp.policies.relu import ReluSoftmax
from fastcmdp.policies.tabular import TabularSoftmax

__all__ = [
    "BoundPolicy",
    "LogLinear",
    "NeuralSoftmax",
    "Policy",
    "ReluSoftmax",
    "TabularSoftmax",
    "check_policy",
]
