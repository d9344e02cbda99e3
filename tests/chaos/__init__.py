"""Processes that are killed at random moments, two at once, and what they leave behind.

    python -m tests.chaos --kills 100 --json results/robustness/chaos.json

A kill is a SIGKILL that reached a process at work. After each, everything that a process reported as done is there, all
that is there can be read, and an answer is the old one or the new one, never a third.
"""
