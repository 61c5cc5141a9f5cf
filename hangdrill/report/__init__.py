"""What people and CI systems see of a drill: live progress, the terminal's tables, JUnit XML and summary.json.

Nothing here judges: verdicts, the diagnosis and its sentence come in as values. No torch and no environment.
"""
