"""The walk over a compiled kernel, and what it counts: requests, words, sectors, and operations.

In reading order: code.py has the compiled kernel as plain values, and launch.py what is launched. walk.py runs many
programs at once, on numbers.py with the rules of operations.py. Requests go to requests.py, and in their order to
log.py; arithmetic goes to work.py. Errors name lines of the user's file by places.py.
"""
