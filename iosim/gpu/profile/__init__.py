"""Which schedule explains a kernel that somebody else wrote."""
