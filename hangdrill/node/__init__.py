"""The process that stands for the controller on one host of a job on several: `python -m hangdrill.node`.

It starts this host's collector and torchrun in a directory of the host's own, carries small files between there and the
run directory that all hosts share, and ends everything of the job on its host: when it is told to, when the controller
falls silent, and when its own deadline is over. It judges nothing.
"""
