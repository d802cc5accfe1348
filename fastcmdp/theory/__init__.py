"""The paper's theory, executable: constants, schedules, and both sides of every inequality on your own problem.

docs/theory.md maps each symbol, equation and lemma of the paper to a name here. Kernel units throughout: rewards
in [0, 1], constraints in [-1, 1] that are met when J_c >= 0, J not normalised.
"""

from __future__ import annotations

from fastcmdp.algorithms.pd_anpg import theorem_settings
from fastcmdp.assumptions.constants import Constants, asgd_steps, constants
from fastcmdp.assumptions.moments import SampleLaw, sample_law
from fastcmdp.assumptions.points import Parametrisation, Point, point
from fastcmdp.theory.bounds import (
    Decay,
    advantage_bound,
    estimator_moments,
    first_order_bound,
    first_order_decay,
    gradient_bound,
    gradient_noise,
    initial_loss_bound,
    local_convergence,
    local_convergence_sampled,
    moment_conditions,
    performance_difference,
    second_moment_expansion,
    second_order_bound,
    smallest_C,
    unbiased_estimates,
    universal_first_order_C,
)
from fastcmdp.theory.certificate import Assumption, Certificate, certificate
from fastcmdp.theory.corrected import corrected_law, dual_dynamics, first_order_error, target_second_moment
from fastcmdp.theory.duality import DualMinimum, dual_minimum, value_iteration
from fastcmdp.theory.global_bounds import (
    constraint_extraction,
    dual_bound,
    dual_drift,
    lagrange_convergence,
    lagrange_descent,
    lagrange_global_convergence,
    strong_duality,
    theorem_1,
)
from fastcmdp.theory.inequality import Inequality
from fastcmdp.theory.inner import InnerMoments, conditional_mean, error_factors, inner_moments
from fastcmdp.theory.paths import Path, follow, sampled_steps, theorem_path
from fastcmdp.theory.schedules import (
    Schedule,
    expected_samples,
    practical_schedule,
    theorem_schedule,
)

__all__ = [
    "Assumption",
    "Certificate",
    "Constants",
    "Decay",
    "DualMinimum",
    "Inequality",
    "InnerMoments",
    "Parametrisation",
    "Path",
    "Point",
    "SampleLaw",
    "Schedule",
    "advantage_bound",
    "asgd_steps",
    "certificate",
    "conditional_mean",
    "constants",
    "constraint_extraction",
    "corrected_law",
    "dual_bound",
    "dual_drift",
    "dual_dynamics",
    "dual_minimum",
    "error_factors",
    "estimator_moments",
    "expected_samples",
    "first_order_bound",
    "first_order_decay",
    "first_order_error",
    "follow",
    "gradient_bound",
    "gradient_noise",
    "initial_loss_bound",
    "inner_moments",
    "lagrange_convergence",
    "lagrange_descent",
    "lagrange_global_convergence",
    "local_convergence",
    "local_convergence_sampled",
    "moment_conditions",
    "performance_difference",
    "point",
    "practical_schedule",
    "sample_law",
    "sampled_steps",
    "second_moment_expansion",
    "second_order_bound",
    "smallest_C",
    "strong_duality",
    "target_second_moment",
    "theorem_1",
    "theorem_path",
    "theorem_schedule",
    "theorem_settings",
    "unbiased_estimates",
    "universal_first_order_C",
    "value_iteration",
]
