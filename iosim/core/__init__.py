"""Problem, machine and watchers: what a schedule's text stands on."""
