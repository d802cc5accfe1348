"""The constants of the paper's assumptions, measured on a problem; `fastcmdp.theory` has the bounds made of them."""
