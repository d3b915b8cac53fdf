"""A wing of someone else: the energy of traffic between HBM and SRAM."""
