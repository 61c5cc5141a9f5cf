"""RankDumps -> Diagnosis: which operation a job hangs in, who never came, and on what basis that is said.

Pure: no input or output, no clock, no order of files. The way through the room: `views` merges what one rank left (its
`history` holds all of it, its notable operations are at hand), `groups` says who is in which group, `progress` and
`transfers` how far each rank came, `scene` lists what is stuck, `graph` follows the waits, `mismatch` compares, `judge`
names or does not, `words` says it.
"""

from hangdrill.diagnosis.diagnose import diagnose
from hangdrill.diagnosis.words import sentence

__all__ = ["diagnose", "sentence"]
