"""Paper A's two months as a scenario and a trace: 54 hosts, 312 jobs, 847 reclaims in 61 days, or fewer days at these rates.

The numbers that the paper gives (section IV, F1 to F4, and section IX-A) are kept exactly, and its laws as laws. The
rest is chosen, and each choice is a named parameter of `PaperCampus` with its reason. Everything ends in an ordinary
scenario (`experiments/examples/paper-campus.toml` is the one of 61 days), and `generate` makes the trace of it; for
another campus, edit that file.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any

from controller.numerics.portable_math import exp
from experiments.inputs.scenario import (
    BackgroundLaw,
    InverseLaw,
    Jobs,
    Owners,
    Peak,
    Protocol,
    Scenario,
)
from experiments.inputs.scenario.owners import HOUR_S
from experiments.inputs.traces.generated import generate
from experiments.inputs.traces.trace import Trace
from topologies.errors import SpecError
from topologies.presets import campus54, three_tier
from topologies.spec import Campus, ResearchReserve, Role
from topologies.units import MBIT_PER_S

DAY_S = 24 * HOUR_S
DAYS = 61.0
HOSTS = 53  # with GPUs, section IV-A
JOBS = 312  # section IX-A
RECLAIMS = 847
EMERGENCIES = 358  # Appendix C; 42 % of 847
GPU_HOURS = 4890.0  # section IX-A
RESERVE = ResearchReserve(beta=0.3)  # beta_p3 of the paper's campus


@dataclass(frozen=True, slots=True)
class PaperCampus:
    """Choices for the values that paper A leaves open.

    Hazard over the day: 1 at night (1:00 to 7:00), `day_factor` while people are about, 6 in the two peaks of F1, no
    peaks at weekends; the middle value gives the coefficient of variation of F4, 0.62.

    Share of hosts lent: 4 890 GPU-hours in 61 days are 3.3 jobs at a time, so a reclaim hits 3.3 jobs over the number
    of lent hosts. With half of them lent an eighth of the reclaims hits a job, 50 of 358 emergencies. The published
    losses of fixed 10-minute periods (7.6 and 8.2 GPU-hours) are 91 and 98 times five minutes. So at most a quarter of
    the emergencies can have hit a job in the paper either. With all lent it would be a sixteenth. With less than half,
    nearly no host is lent for whole evenings, and losses then depend on the places of checkpoints.

    Loss budget: five minutes, the mean loss of a fixed period of ten minutes. The hazard of a lent host is 0.009
    emergencies an hour; the paper's own 0.99 an hour cannot be had with its other numbers. It is so low that P1 without
    a budget would take a checkpoint every hour or two.

    The share lent and the bursts were chosen after runs had been looked at. A share of 30 % left the campus empty on
    some evenings; bursts within one building took jobs together with their only copies. So the level of losses here is
    not evidence for the published level; the comparison of systems on one trace is.

    Another `campus` has as many reclaims and jobs a host. SpecError: a share, or a load, outside 0.01 to 0.99; a campus
    without a volunteer that has a GPU.
    """

    campus: Campus = field(default_factory=campus54)
    # of the GPU time that owners lend, asked for by jobs of the same lengths; None: what the paper's jobs ask for, 7.7 %
    load: float | None = None
    day_factor: float = 2.15  # of the hazard, 7:00 to 1:00 outside the peaks
    peak_factor: float = 6.0  # F1
    host_sigma: float = 0.0  # owners are alike: the paper gives one hazard
    lent_share: float = 0.5
    absence_sigma: float = 1.0
    burst: int = 7  # "up to 7 simultaneous departures"
    # of reclaims; drawn from the whole campus, for the paper has nothing about buildings
    burst_share: float = 0.12
    burst_in_building: bool = False
    # definition 1 gives the least, 10 s; with this a tenth is too short for its payload
    notice_mean_s: float = 600.0
    notice_max_s: float = HOUR_S
    payload_median_bytes: float = 3.2e9  # F2
    payload_sigma: float = 1.2  # the ends of F2, 120 MB and 48 GB, are then at 0.3 % and 98.8 %
    run_sigma: float = 1.0
    run_max_s: float = 72 * HOUR_S
    step_s: float = 10.0
    loss_budget_s: float = 300.0
    # the head node keeps checkpoints of every system that sends them there: all of Slurm's, since the paper's has storage that
    # all nodes share, and second copies. A row without these (one-copy, no-migration, as printed) has nothing there
    head_stores: bool = True
    # of every system: what our agents do; the paper gives what a write over the network costs and not what a snapshot stops
    snapshots: str = "copy"
    copy_gb_per_s: float = Protocol().copy_gb_per_s
    restart_s: float = 10.0  # T_r: with C/B = 48.3 s (Appendix C), a downtime of 58 s; Table III has 61


def two_buildings() -> Campus:
    """Return 54 hosts in two buildings instead of four."""
    return three_tier(54, 2, hosts_per_access=9, reserve=RESERVE)


def eight_buildings() -> Campus:
    """Return 200 hosts in eight buildings."""
    return three_tier(200, 8, reserve=RESERVE)


def slow_uplinks() -> Campus:
    """Return 54 hosts behind old switches, below the background's law of either level, so without others' traffic."""
    return three_tier(
        54,
        access_bytes_per_s=100 * MBIT_PER_S,
        uplink_bytes_per_s=200 * MBIT_PER_S,
        core_bytes_per_s=200 * MBIT_PER_S,
        reserve=RESERVE,
    )


def paper_campus(
    seed: int = 1, *, days: float = DAYS, choices: PaperCampus | None = None
) -> tuple[Scenario, Trace]:
    """Return the scenario and its trace, in real units; with fewer `days`, jobs, reclaims and GPU-hours in proportion.

    SpecError: `days` outside 0.1 to 3650, or a choice that cannot be.
    """
    scenario = paper_scenario(seed, days=days, choices=choices)
    return scenario, generate(scenario)


def paper_scenario(seed: int = 1, *, days: float = DAYS, choices: PaperCampus | None = None) -> Scenario:
    """Return the scenario alone."""
    if isinstance(days, bool) or not isinstance(days, int | float) or not 0.1 <= days <= 3650.0:
        raise SpecError("days", days, "a number from 0.1 to 3650")
    chosen = choices or PaperCampus()
    for name, share in (("lent_share", chosen.lent_share), ("load", chosen.load)):
        if share is not None and not 0.01 <= share <= 0.99:
            raise SpecError(name, share, "a share from 0.01 to 0.99")
    gpus = [host.gpus for host in chosen.campus.hosts if host.gpus and host.role is Role.VOLUNTEER]
    if not gpus:
        raise SpecError("campus", chosen.campus.name, "a campus with a volunteer that has a GPU")
    part = days / DAYS * (len(gpus) / HOSTS)
    run_s, jobs = GPU_HOURS * HOUR_S / JOBS, JOBS * part
    if chosen.load is not None:
        jobs = chosen.load * chosen.lent_share * sum(gpus) * days * DAY_S / run_s
    jobs, reclaims = max(1, round(jobs)), max(1, round(RECLAIMS * part))
    away_s = (1.0 - chosen.lent_share) * HOSTS * DAYS * DAY_S / RECLAIMS  # Little's law
    away_median_s = away_s / exp(chosen.absence_sigma * chosen.absence_sigma / 2.0)
    per_lent_s = RECLAIMS / (chosen.lent_share * HOSTS * DAYS * DAY_S)
    profile = Owners(hazard_per_s=1.0, **_days(chosen))
    mean_factor = profile.exposure(0.0, 7 * DAY_S) / (7 * DAY_S)
    return Scenario(
        name="paper-campus",
        campus=chosen.campus,
        seed=seed,
        duration_s=days * DAY_S,
        protocol=Protocol(
            restart_s=chosen.restart_s,
            head_stores=chosen.head_stores,
            snapshots=chosen.snapshots,
            copy_gb_per_s=chosen.copy_gb_per_s,
        ),
        jobs=Jobs(
            interarrival=InverseLaw("exponential", days * DAY_S / jobs),
            count=jobs,
            work_s=run_s * jobs,
            payload=InverseLaw("lognormal", chosen.payload_median_bytes, chosen.payload_sigma, 120e6, 48e9),
            run_time=InverseLaw("lognormal", 0.6 * run_s, chosen.run_sigma, 0.5 * HOUR_S, chosen.run_max_s),
            step_s=chosen.step_s,
            loss_budget_s=chosen.loss_budget_s,
        ),
        owners=Owners(
            hazard_per_s=per_lent_s / mean_factor,
            host_sigma=chosen.host_sigma,
            **_days(chosen),
            emergency_share=EMERGENCIES / RECLAIMS,
            grace_share=0.0,
            notice=InverseLaw("exponential", chosen.notice_mean_s, minimum=10.0, maximum=chosen.notice_max_s),
            absence=InverseLaw("lognormal", away_median_s, chosen.absence_sigma, 600.0, 30 * DAY_S),
            count=reclaims,
            lent_at_start=chosen.lent_share,
            burst=chosen.burst,
            burst_share=chosen.burst_share,
            burst_in_building=chosen.burst_in_building,
        ),
        background=BackgroundLaw(),
    )


def _days(chosen: PaperCampus) -> Any:
    """Return the profile of the hazard over the week; the run begins on a Monday at midnight."""
    awake, peak = chosen.day_factor, chosen.peak_factor
    early, late = Peak(0.0, HOUR_S, awake), Peak(20 * HOUR_S, DAY_S, awake)
    weekday = (
        early,
        Peak(7 * HOUR_S, 11.5 * HOUR_S, awake),
        Peak(11.5 * HOUR_S, 13 * HOUR_S, peak),
        Peak(13 * HOUR_S, 17.5 * HOUR_S, awake),
        Peak(17.5 * HOUR_S, 20 * HOUR_S, peak),
        late,
    )
    weekend = (early, Peak(7 * HOUR_S, DAY_S, awake))
    return {
        "peaks": weekday,
        "weekends": True,
        "weekend_peaks": weekend,
        "first_weekday": 0,
        "day_start_s": 0.0,
    }
