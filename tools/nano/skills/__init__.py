"""The skills, a file each: make(rng, long) gives an Example. long, from 0 to 1, is how long texts may get (training starts
short). SHARES: how often each is drawn."""
from . import (arithmetic, code, copy_edit, extract, facts, identity, json_request, multi_turn, recall, refuse, stories,
               tool_calls, units, word_tasks)

SHARES = [
    (arithmetic.make, 15),
    (units.make, 5),
    (facts.make, 8),
    (copy_edit.make, 15),
    (word_tasks.make, 13),
    (recall.make, 4),
    (extract.make, 5),
    (stories.make, 4),
    (json_request.make, 7),
    (tool_calls.make, 12),
    (multi_turn.make, 6),
    (code.make, 4),
    (refuse.make, 4),
    (identity.make, 5),
]
