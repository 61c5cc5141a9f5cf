"""Certify an upgrade: measured drills on two stacks, the rollback, the checkpoint's way back, a receipt that expires.

The order is in `run.py`. A cell (`cells.py`) measures one thing on some stacks; `matrix.py` lists the cells of a plan.
What runs inside a stack is brought along from `hangdrill/rank`; this room imports no torch.
"""
