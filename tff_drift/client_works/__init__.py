"""Local training on clients, written as init / step / finish."""

from tff_drift.client_works.dropout import Dropout

__all__ = ["Dropout"]
