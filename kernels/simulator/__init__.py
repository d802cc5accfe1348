"""Rollouts and chains through a simulator, whose functions are called by address."""
