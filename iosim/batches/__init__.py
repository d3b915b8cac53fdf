"""Batches: the words that one step of a server moves, request by request.

A batch is a list of problems that differ in their numbers of queries and keys only. Each is counted by the schedules
that count a single problem; nothing here has formulas of its own.
"""
