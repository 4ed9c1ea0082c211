"""Whether this machine gives the recorded bits: logits of nano and of random tiny models, as hashes.

golden.json is made by scripts/make_golden.py. nano's hashes are those of the numerics contract's reference program.
"""
