"""Policies as data: softmax policies pi(a|s) proportional to exp(logit), one NamedTuple and one file a kind.

Whoever imports any of these files has all kinds registered with the generic functions of ``softmax``.
"""

from fastcmdp.kernels.policy import features, means, network, relu, tabular

__all__ = ["features", "means", "network", "relu", "tabular"]
