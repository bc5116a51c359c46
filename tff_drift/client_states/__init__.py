"""The state that clients keep between the rounds in which they take part.

Methods such as SCAFFOLD, FedDyn and AdaBest let each client keep something, a
control variate for instance, until it is sampled again. A store of client states
does that for a simulation. Clients that have not been seen have the initial state
and occupy no space, and the costs of a round follow its cohort, not the population.

With your own driver it takes three lines, marked below:

>>> import numpy as np
>>> from tff_drift import client_states
>>> def train_round(model, client_states):
...     new = [{"variate": each["variate"] + model} for each in client_states]
...     return model + 1, new
>>> model = np.float32(1)
>>> initial_state = {"variate": np.zeros(2, np.float32)}
>>> states = client_states.InMemoryClientStates(initial_state)  # 1
>>> for cohort in [["ann", "bob"], ["bob", "eve"]]:
...     old = states.gather(cohort)  # 2
...     model, new = train_round(model, old)
...     states.scatter(cohort, new)  # 3
>>> [state["variate"].tolist() for state in states.gather(["bob", "new"])]
[[3.0, 3.0], [0.0, 0.0]]

`DiskClientStates` does the same in a folder, for states that RAM cannot hold. It
takes part in checkpoints: the states that `restore` brings back are those of the
checkpoint's round, whenever the program was killed. The fingerprint that `commit`
returns goes into the checkpoint: by it the store of another run is refused, and one
whose states were changed.

>>> import pathlib, tempfile
>>> folder = pathlib.Path(tempfile.mkdtemp())
>>> def train(rounds):
...     with client_states.DiskClientStates(folder / "states", initial_state) as states:
...         model, completed = np.float32(1), 0
...         if (folder / "model.npz").exists():
...             checkpoint = np.load(folder / "model.npz")
...             model, completed = checkpoint["model"], int(checkpoint["completed"])
...             states.restore(completed, str(checkpoint["fingerprint"]))
...         for round_number in range(completed, rounds):
...             model, new = train_round(model, states.gather(["ann"]))
...             states.scatter(["ann"], new)
...             fingerprint = states.commit(round_number + 1)
...             parts = {"model": model, "completed": round_number + 1}
...             np.savez(folder / "new.npz", **parts, fingerprint=fingerprint)
...             (folder / "new.npz").replace(folder / "model.npz")
...             states.prune(round_number + 1)
...         return states.gather(["ann"])[0]["variate"].tolist()
>>> train(rounds=2)
[3.0, 3.0]
>>> train(rounds=3)
[6.0, 6.0]
"""

from tff_drift.client_states.in_memory import InMemoryClientStates
from tff_drift.client_states.on_disk import DiskClientStates
from tff_drift.client_states.store import ClientStates, ClientStatesError

__all__ = [
    "ClientStates",
    "ClientStatesError",
    "DiskClientStates",
    "InMemoryClientStates",
]
