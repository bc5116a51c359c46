"""Keras layers whose training is reproducible and fast on clients."""

from tff_drift.layers.dropout import Dropout
from tff_drift.layers.gru import GRU
from tff_drift.layers.lstm import LSTM
from tff_drift.layers.recurrence import uncompiled
from tff_drift.layers.step_seed import draw_seed

__all__ = ["GRU", "LSTM", "Dropout", "draw_seed", "uncompiled"]
