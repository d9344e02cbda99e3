"""Damaged, hostile and forged inputs of every kind for every reader, command and public call.

A case is `KIND:NUMBER`: the kind makes the input from that seed alone, so every case can be run again by its name:

    python -m tests.fuzz --case KIND:NUMBER      one case, with its traceback
    python -m tests.fuzz --inputs 100000         so many in process, dealt out over the kinds
    python -m tests.fuzz --commands 1000         so many as real commands
"""
