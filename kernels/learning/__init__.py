"""Parts that several algorithms learn with: inner loops, critics, levels of penalties, control variates."""
