"""The flags of the command line, from their words to the settings of runs.

Nothing here imports TensorFlow, so that help, lists and most mistakes are answered at
once. In the order of a call:

    parser.py           words -> values by names of flags
    flag.py             what a flag is
    table.py            the flags, in rows
    declarations.py     all flags: those, and the options of methods and tasks
    plugins.py          files of the user that register methods and tasks
    validate.py         which flags mean something together
    settings.py         values -> the settings of runs; for programs too
    published_rates.py  the defaults that papers tuned
    paper_settings.py   whole protocols of papers
    tuned_settings.py   files of what a sweep found best
    errors.py           mistakes that the user can correct
"""
