"""Files as disks, networks and people damage them, for property tests."""

import os

import hypothesis
from hypothesis import strategies as st

_FILES = 5000 if os.environ.get("TFF_DRIFT_SOAK") else 25

fuzz = hypothesis.settings(
    max_examples=_FILES,
    deadline=None,
    derandomize=not os.environ.get("TFF_DRIFT_SOAK"),
    suppress_health_check=list(hypothesis.HealthCheck),
)


def damages(max_flips=3):
    """Functions that change the bytes of a file."""

    def flip(places):
        def change(data):
            changed = bytearray(data)
            for place, bit in places:
                changed[int(place * len(changed))] ^= 1 << bit
            return bytes(changed)

        return change

    place = st.floats(0, 1, exclude_max=True)
    return st.one_of(
        st.lists(
            st.tuples(place, st.integers(0, 7)), min_size=1, max_size=max_flips
        ).map(flip),
        place.map(lambda share: lambda data: data[: int(share * len(data))]),
        st.tuples(place, st.binary(min_size=1, max_size=20)).map(
            lambda insert: (
                lambda data: b"".join(
                    [
                        data[: int(insert[0] * len(data))],
                        insert[1],
                        data[int(insert[0] * len(data)) :],
                    ]
                )
            )
        ),
        st.binary(max_size=200).map(lambda foreign: lambda _: foreign),
    )
