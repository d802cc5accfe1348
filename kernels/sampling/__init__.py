"""Draws from models in tables: alias tables, lanes of walks side by side, rollouts, chains, episodes."""
