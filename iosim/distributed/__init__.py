"""Attention on several GPUs: the words that each GPU receives from the others, and the least that any schedule can.

In reading order: theorems.py has the floors across devices as functions of integers. floors.py finds those that hold
for a problem and a layout.
"""
