"""How far the predictions hang on what is assumed.

Owns: which assumptions are varied, one at a time. Refuses to know: how a prediction is made.
"""

# (what is assumed otherwise, changed constants of the die, changed overlap of experts)
CASES = [
    ("as above", {}, None),
    ("launch 8 us", {"launch": 8e-6}, None),
    ("launch 16 us", {"launch": 16e-6}, None),
    ("launch 45 us", {"launch": 45e-6}, None),
    ("experts: 0.6 of as many", {}, 0.4),
    ("memory hides 0.4", {"hidden": 0.4}, None),
    ("clock 562 MHz", {"clock": 562e6}, None),
    ("bandwidth 0.6 of 240", {"bandwidth_share": 0.6}, None),
    ("bandwidth 0.8 of 240", {"bandwidth_share": 0.8}, None),
    ("global loads 600 clocks", {"latency": 600}, None),
    ("global loads 250 clocks", {"latency": 250}, None),
]
