"""What to do where a task's data is absent."""


def ways_to_go_on(fetched: str, folder: str, stand_in: str) -> str:
    """Returns the ways, with the keywords of `tasks.load` and the flags of programs.

    Args:
      fetched: What is downloaded, and how.
      folder: What a folder of the user must hold.
      stand_in: The small data to try the task on.
    """
    return (
        f"There are three ways to go on: download=True (--download) fetches {fetched}, "
        "on a machine with network; cache_dir=FOLDER (--cache_dir) names a folder "
        f"{folder}; synthetic=True (--synthetic) runs on {stand_in}."
    )
