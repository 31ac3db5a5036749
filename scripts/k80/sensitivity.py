"""How far the predictions hang on what is assumed.

Owns: which assumptions are varied, one at a time. Refuses to know: how a prediction is made.
"""

# (what is assumed otherwise, changed constants of the die, changed overlap of experts, layers on the first die)
CASES = [
    ("as above", {}, None, None),
    ("launch 8 us", {"launch": 8e-6}, None, None),
    ("launch 16 us", {"launch": 16e-6}, None, None),
    ("launch 45 us", {"launch": 45e-6}, None, None),
    ("experts 0.4 shared", {}, 0.4, None),
    ("memory hides 0.4", {"hidden": 0.4}, None, None),
    ("memory hides all", {"hidden": 1.0}, None, None),
    ("bandwidth 0.6 of 240", {"bandwidth_share": 0.6}, None, None),
    ("bandwidth 0.8 of 240", {"bandwidth_share": 0.8}, None, None),
    ("clock 562 MHz", {"clock": 562e6}, None, None),
    ("26 and 14 layers", {}, None, 26),
]
