"""The benchmark of `hangdrill diagnose`: dumps of jobs that never ran, and what measures the readers."""
