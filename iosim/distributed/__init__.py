"""Attention on several GPUs: the words that each GPU receives from the others, and the least that any schedule can.

In reading order: texts.py has the schedules, as texts of the machines of `core`, one level up. schedules.py has their
words by hand, across.py the parts of tensors that texts name, and hops.py what GPUs see of each other under a mask.
inside.py has the schedules inside a GPU. theorems.py has the floors across devices as functions of integers. floors.py
finds those that hold for a problem and a layout.
"""
