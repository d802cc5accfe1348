"""What goes wrong in a simulator under way, in words."""

from __future__ import annotations

from fastcmdp.kernels.simulator import simulate as kernel


def fault_text(actions: kernel.LiveActions, features: str, forks: bool) -> str:
    """The fault that a run with these actions met, in a sentence; "" if none.

    features : what the user calls the function of features; forks : whether states are copied by a fork
    """
    code, after, action, _ = actions.fault.tolist()
    if code == 0:
        return ""
    what = {
        kernel.STEP_FAULT: "the reward or a cost of step was not finite",
        kernel.STATE_FAULT: "step left a state that is not finite",
        kernel.FEATURES_FAULT: f"{features} raised or were not finite, or the logits overflowed",
        kernel.RESET_FAULT: "reset left a state that is not finite",
        kernel.RAISED: "step, reset or features raised an exception",
        kernel.WALK_FAULT: "step raised, or its reward or a cost was not finite",
        kernel.WALK_RESET_FAULT: "reset raised, or left a state that is not finite",
    }[code]
    if forks:
        return what
    if code in (kernel.RESET_FAULT, kernel.WALK_RESET_FAULT) or after < 0:
        return "reset raised an exception" if code == kernel.RAISED else what
    if code == kernel.RAISED:
        what = f"{'step' if action >= 0 else features} raised an exception"
    chosen = f", action {action}" if action >= 0 else ""
    return f"{what} (state {actions.before.tolist()}{chosen}, {after} steps into a rollout)"
