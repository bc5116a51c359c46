"""The plans of computations, made once and kept."""

from __future__ import annotations

import collections
import hashlib
import threading
import weakref
from typing import Any

import tensorflow_federated as tff

from tff_drift import compat
from tff_drift.execution.local.data.results import Assembler, build_assembler
from tff_drift.execution.local.phases import RunnablePlan
from tff_drift.execution.local.plan.plan import Plan
from tff_drift.execution.local.plan.planner import build_plan
from tff_drift.execution.local.runners.options import Options


class PlanCache:
    """Plans every computation once.

    A plan, with its functions and what TensorFlow holds for them, threads included,
    lives as long as a computation that it is for. Equal computations share one; for
    programs that make them again and again, a few of those used last live on.

    Args:
      options: How the plans run.
    """

    def __init__(self, options: Options) -> None:
        self._options = options
        # By the content of the computation.
        self._plans: weakref.WeakValueDictionary[bytes, RunnablePlan] = (
            weakref.WeakValueDictionary()
        )
        self._recent: collections.OrderedDict[bytes, RunnablePlan] = (
            collections.OrderedDict()
        )
        # By the computation itself, whose content takes long to look at.
        self._known: dict[int, tuple[Any, RunnablePlan, Assembler]] = {}
        self._lock = threading.Lock()

    def __len__(self) -> int:
        """Returns the number of plans that are alive."""
        return len(self._plans)

    def get(self, computation: Any) -> tuple[RunnablePlan, Assembler]:
        """Returns a computation's plan, and what assembles its result.

        Args:
          computation: A `tff.Computation`.

        Raises:
          NotImplementedError: If it holds something that is not supported.
        """
        with self._lock:
            known = self._known.get(id(computation))
            if known is not None and known[0]() is computation:
                return known[1:]
            proto = compat.framework.serialize_computation(computation)
            serialized = proto.SerializeToString(deterministic=True)
            content = hashlib.sha256(serialized).digest()
            plan = self._plans.get(content)
            if plan is None:
                plan = RunnablePlan(_plan(computation), self._options)
                self._plans[content] = plan
            self._recent[content] = plan
            self._recent.move_to_end(content)
            if len(self._recent) > self._options.limits.plans:
                self._recent.popitem(last=False)
            key = id(computation)
            forget = weakref.ref(computation, lambda _: self._known.pop(key, None))
            assemble = build_assembler(
                plan.plan.result, computation.type_signature.result
            )
            self._known[key] = (forget, plan, assemble)
            return plan, assemble


def _plan(computation: Any) -> Plan:
    """Replaces intrinsics as TFF's native compiler does, and plans the rest."""
    block, _ = tff.tensorflow.replace_intrinsics_with_bodies(
        computation.to_building_block()
    )
    return build_plan(block)
