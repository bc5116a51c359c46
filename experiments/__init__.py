"""Experiments: the command line, the default settings and the reports.

Each package uses those above it alone:

    flags      what can be said and what it means; without TensorFlow
    presets    the experiments of papers, as data; without TensorFlow
    analysis   what finished runs say, as tables and figures; without TensorFlow
    reports    results as tables, figures and files
    training   from the settings of runs to their results
    commands   what `tff-drift` can do; imports the others when it does it
    main       the entry; what a terminal does to a program is in `terminal`
"""

import tff_drift  # noqa: F401 (before TensorFlow Federated)
