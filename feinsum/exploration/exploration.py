"""An exploration: one einsum, one transform space and one device, and questions about them."""

from __future__ import annotations

import os
from collections.abc import Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from feinsum.apart import remembered
from feinsum.database import Database, TuningRecord
from feinsum.devices import Device
from feinsum.devices import device as choose_device
from feinsum.einsum import BatchedEinsum, require_einsum
from feinsum.errors import TransformError
from feinsum.exploration.points import Comparison, SpacePoint
from feinsum.lengths import require_mapping
from feinsum.query import query
from feinsum.registry import find_space, matching_spaces
from feinsum.report.census import Census, take_census
from feinsum.report.displays import nominal_sizes
from feinsum.report.figures import listed
from feinsum.report.formula import mathml
from feinsum.report.html import display_block, element, facts
from feinsum.space import Missed, Problem, TransformSpace

if TYPE_CHECKING:
    import pyopencl as cl

    from feinsum.exploration.controls import Controls
    from feinsum.report.picture import Picture
    from feinsum.timing import Timing
    from feinsum.tune.report import TuningReport

Store = Database | str | os.PathLike[str] | None


@dataclass(frozen=True)
class Exploration:
    """A transform space as it is for one einsum on one device.  Made by :func:`explore`.

    :ivar einsum: the einsum.
    :ivar device: the device.
    :ivar space: the space explored.
    :ivar sizes: the lengths expected of the long axes.
    :ivar database: where records are kept; None is the store of the user.
    """

    einsum: BatchedEinsum
    device: Device
    space: TransformSpace
    sizes: Mapping[str, int]
    database: Store = None

    @remembered
    def problem(self) -> Problem:
        """The problem that the space is asked about."""
        return self.space.problem(self.einsum, self.sizes, self.device.profile)

    @remembered
    def parameters(self) -> dict[str, tuple[Any, ...]]:
        """The choices of every parameter, best guess first."""
        return self.space.parameters(self.problem)

    @remembered
    def census(self) -> Census:
        """How many combinations of choices are configurations, and why the others are not."""
        return take_census(self.space, self.problem)

    @remembered
    def default(self) -> dict[str, Any]:
        """The configuration that the space would try first.

        :raises TransformError: if no configuration is accepted on this device.
        """
        return dict(self.space.default(self.problem))

    def configuration(self, changes: Mapping[str, Any] | None = None) -> dict[str, Any]:
        """The default with some parameters changed.

        :raises TransformError: if a parameter does not exist.
        """
        unknown = [name for name in changes or {} if name not in self.parameters]
        if unknown:
            known = ", ".join(self.parameters)
            raise TransformError(f"space '{self.space.name}' has no parameter '{unknown[0]}'; it has {known}")
        return {**self.default, **(changes or {})}

    def point(self, changes: Mapping[str, Any] | None = None) -> SpacePoint:
        """The code of a configuration: the default with some parameters changed."""
        return SpacePoint(self.einsum, self.sizes, self.space, self.problem, self.configuration(changes))

    def compare(self, first: Mapping[str, Any] | None, second: Mapping[str, Any] | None) -> Comparison:
        """Two configurations beside each other, each the default with some parameters changed."""
        points = self.point(first), self.point(second)
        return Comparison(*points, (self.recorded_s(points[0]), self.recorded_s(points[1])))

    def time(self, changes: Mapping[str, Any] | None = None, *, seconds: float = 0.3, seed: int | None = None) -> Timing:
        """Prove and time one configuration in this process; see :func:`feinsum.timeit`."""
        from feinsum.tune.timeit import timeit

        configuration = self.configuration(changes)
        return timeit(
            self.einsum,
            self.device,
            configuration=configuration,
            space=self.space,
            sizes=self.sizes,
            seconds=seconds,
            seed=seed,
        )

    def sample(self, trials: int = 24, *, seed: int = 0, sampler: str = "random", progress: bool = True) -> TuningReport:
        """Try configurations drawn at random, with a progress bar.

        Those of a registered space are tried in processes of their own and recorded, as :func:`feinsum.autotune` does;
        those of a space that is still being written are tried in this process, and nothing is kept.
        """
        from feinsum.exploration.sampling import sample_here
        from feinsum.tune.autotune import autotune

        if not self.registered:
            return sample_here(self, trials, seed, progress)
        return autotune(
            self.einsum,
            self.device,
            self.database,
            self.sizes,
            self.space.name,
            trials=trials,
            sampler=sampler,
            seed=seed,
            progress=progress,
        )

    @property
    def registered(self) -> bool:
        """Whether other processes find the space by its name."""
        try:
            return find_space(self.space.name) is self.space
        except TransformError:
            return False

    def records(self) -> list[TuningRecord]:
        """The records of this version of the space for the einsum at these lengths on this device, best first."""
        from feinsum.canonicalization import canonicalize_einsum

        sizes = canonicalize_einsum(self.einsum).renaming.lengths(self.einsum.resolve(self.sizes))
        here = (self.space.name, self.space.version, sizes)
        found = query(self.einsum, self.device, self.database)
        return type(found)(r for r in found if (r.space, r.space_version, dict(r.sizes)) == here)

    def recorded_s(self, point: SpacePoint) -> float | None:
        """The best time recorded of a point, in seconds."""
        same = (r.median_s for r in self.records() if dict(r.configuration) == dict(point.configuration))
        return next(same, None)

    def picture(self) -> Picture:
        """The parameters with their choices, and the share of each that the constraint accepts.

        :raises FeinsumError: if matplotlib is not installed.
        """
        from feinsum.report.plots import survivors

        return survivors(self.census, f"{self.space.name}\n{self.census}")

    def controls(self) -> Controls:
        """Sliders and menus for a configuration, where ipywidgets is installed; else a table."""
        from feinsum.exploration.controls import Controls

        return Controls(self)

    def __str__(self) -> str:
        return f"{self.space.name}@{self.space.version} for {self.einsum.subscripts} on {self.device.id}: {self.census}"

    def _repr_html_(self) -> str:
        known = {
            "einsum": element("code", str(self.einsum)),
            "lengths": listed(self.einsum.resolve(self.sizes)),
            "device": str(self.device),
            "space": f"{self.space.name}, version {self.space.version}",
        }
        if self.census.accepted:
            known["default"] = listed(self.default)
        return display_block(mathml(self.einsum), facts(known), self.census.to_html(), title=f"exploring {self.space.name}")


def explore(
    e: BatchedEinsum,
    device: Device | str | cl.Device | cl.CommandQueue | None = None,
    database: Store = None,
    sizes: Mapping[str, int] | None = None,
    space: TransformSpace | str | None = None,
) -> Exploration:
    """Look at a transform space as it is for an einsum on a device.

    :param device: see :func:`feinsum.device`.
    :param database: where records are kept; None is the store of the user.
    :param sizes: lengths expected of long axes; by default round ones at which the einsum moves 64 MiB at most.
    :param space: a space, registered or not, or the name of one; by default the first that matches and has a configuration.
    :raises TransformError: if the space does not apply to `e`.
    """
    require_einsum(e)
    require_mapping(sizes)
    chosen = choose_device(device)
    lengths = nominal_sizes(e) if sizes is None else dict(sizes)
    if isinstance(space, str):
        space = find_space(space)
    if space is None:
        space = next(s for s in matching_spaces(e) if _has_any(s, e, lengths, chosen))
    found = Exploration(e, chosen, space, lengths, database)
    _ = found.problem  # refuses a space that does not apply
    return found


def _has_any(space: TransformSpace, e: BatchedEinsum, lengths: Mapping[str, int], device: Device) -> bool:
    with Missed(space):
        return next(space.configurations(space.problem(e, lengths, device.profile)), None) is not None
    return False
